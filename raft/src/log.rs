//! The log of one group in memory, as the engine reads it.
//!
//! Has terms and descriptors, never payloads. Does not know which entries are durable: the caller writes the results
//! of `Groups::ready`. Also has the membership that applied at each index since the start, so that the start can move
//! forward.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::entry::{entry_of_item, Item, DATA, DESCRIPTOR_SIZE};

/// Maximum payload bytes of the entries that are read at once for a message; at least one entry is always read.
/// Entries that are not in this log yet, and messages that the engine joins, are not counted.
const PAYLOAD_MAX: u64 = 4 << 20;
/// Size of an entry in the engine's limits of a message: about its real size there.
pub const ENTRY_COST: u64 = 64;

/// A state of the application, to send in place of compacted entries.
#[derive(Clone, Debug)]
pub struct Point {
    pub index: u64,
    pub term: u64,
    pub conf: ConfState,
    pub descriptor: [u8; DESCRIPTOR_SIZE],
}

/// The entries after the start, the vote, and the memberships.
///
/// Invariant: `confs` is not empty and ascends, and its first index is at or before the start.
pub struct Log {
    pub hard: HardState,
    start: u64,      // index of the last compacted entry; 1 in a new group, 0 before a peer's first snapshot
    start_term: u64, // term of that entry
    items: VecDeque<Item>,
    confs: Vec<(u64, ConfState)>,
    offered: Option<Point>,
    wanted: AtomicU64, // the peer that needs a snapshot; 0: none
}

impl Log {
    pub fn new(hard: HardState, start: u64, start_term: u64, conf: ConfState, items: Vec<Item>) -> Log {
        Log {
            hard,
            start,
            start_term,
            items: items.into(),
            confs: vec![(start, conf)],
            offered: None,
            wanted: AtomicU64::new(0),
        }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn last(&self) -> u64 {
        self.start + self.items.len() as u64
    }

    /// Returns the entry at an index after the start.
    pub fn item(&self, index: u64) -> Option<&Item> {
        self.items.get(index.checked_sub(self.start + 1)? as usize)
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.start {
            return Some(self.start_term);
        }
        self.item(index).map(|item| item.term)
    }

    /// Stores entries from `first` on; they replace all entries from that index on.
    pub fn append(&mut self, first: u64, items: &[Item]) {
        assert!(first > self.start, "entry {first} before the start {}", self.start);
        assert!(first <= self.last() + 1, "entry {first} after a gap, the last is {}", self.last());
        self.items.truncate((first - self.start - 1) as usize);
        self.items.extend(items);
    }

    /// Restarts the log after a snapshot.
    pub fn restart(&mut self, index: u64, term: u64, conf: ConfState) {
        self.items.clear();
        (self.start, self.start_term) = (index, term);
        self.confs = vec![(index, conf)];
        self.offered = None;
    }

    /// Removes entries up to `index`, which have been applied; returns the new start of the log.
    pub fn compact(&mut self, index: u64) -> std::result::Result<(u64, u64, ConfState), String> {
        let last = self.last();
        let term = self
            .term_at(index)
            .ok_or_else(|| format!("index {index} is not in the log, it has {} to {last}", self.start))?;
        self.items.drain(..(index - self.start) as usize);
        (self.start, self.start_term) = (index, term);
        let gone = self.confs.iter().take_while(|(at, _)| *at <= index).count();
        self.confs.drain(..gone - 1);
        self.offered.take_if(|point| point.index < index);
        Ok((index, term, self.confs[0].1.clone()))
    }

    /// Stores the membership that applies from `index` on.
    pub fn set_conf(&mut self, index: u64, conf: ConfState) {
        self.confs.push((index, conf));
    }

    /// Returns the membership after all applied entries.
    pub fn conf(&self) -> &ConfState {
        &self.confs[self.confs.len() - 1].1
    }

    /// Returns the membership at an index, which must not be before the start.
    pub fn conf_at(&self, index: u64) -> &ConfState {
        let count = self.confs.iter().take_while(|(at, _)| *at <= index).count();
        &self.confs[count.max(1) - 1].1
    }

    /// Offers the state at `index` to peers that need it.
    pub fn offer(&mut self, index: u64, descriptor: [u8; DESCRIPTOR_SIZE]) -> std::result::Result<(), String> {
        let term = self
            .term_at(index)
            .ok_or_else(|| format!("index {index} is not in the log, it has {} to {}", self.start, self.last()))?;
        self.offered = Some(Point { index, term, conf: self.conf_at(index).clone(), descriptor });
        Ok(())
    }

    /// Withdraws the offer: the transfer failed, and the data may no longer exist.
    pub fn withdraw(&mut self) {
        self.offered = None;
    }

    /// Returns the peer that has needed a snapshot since the last call; 0: none.
    pub fn take_wanted(&self) -> u64 {
        self.wanted.swap(0, Ordering::Relaxed)
    }

    pub fn entries_count(&self) -> usize {
        self.items.len()
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.confs[0].1.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.start {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let count_max = max_size.into().map_or(u64::MAX, |size| (size / ENTRY_COST).max(1));
        let (from, to) = ((low - self.start - 1) as usize, (high - self.start - 1) as usize);
        let mut payload = 0;
        let mut found = Vec::with_capacity(to.saturating_sub(from).min(count_max as usize));
        for (at, item) in self.items.range(from..to).take(count_max as usize).enumerate() {
            payload += payload_size(item);
            if at > 0 && payload > PAYLOAD_MAX && context.can_async() {
                break; // only messages may be limited by payload bytes; the next message continues here
            }
            found.push(entry_of_item(item, low + at as u64));
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index < self.start {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.term_at(index).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.start + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        match &self.offered {
            // A peer permanently ignores a snapshot whose membership does not include it.
            Some(point) if point.index >= request_index.max(1) && has_member(&point.conf, to) => {
                Ok(snapshot_of(point))
            }
            _ => {
                self.wanted.store(to, Ordering::Relaxed);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

fn has_member(conf: &ConfState, peer: u64) -> bool {
    [&conf.voters, &conf.learners, &conf.voters_outgoing].iter().any(|list| list.contains(&peer))
}

fn snapshot_of(point: &Point) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.data = point.descriptor.to_vec().into();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (point.index, point.term);
    meta.set_conf_state(point.conf.clone());
    snapshot
}

/// Returns the size of the payload of a descriptor: its first four bytes.
fn payload_size(item: &Item) -> u64 {
    if item.kind != DATA {
        return 0;
    }
    u64::from(u32::from_le_bytes([item.body[0], item.body[1], item.body[2], item.body[3]]))
}
