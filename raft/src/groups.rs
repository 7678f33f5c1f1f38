//! All groups of one node: one call per turn serves all of them.
//!
//! Knows nothing of Python, sockets and disks. Every call of a group runs under `guard`: a panic quarantines only
//! that group and is reported with its name. Results are in the order of events, so equal calls give equal bytes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use raft::eraftpb::{ConfState, EntryType, HardState, Message, MessageType};

use crate::entry::{self, Item, DATA, DESCRIPTOR_SIZE};
use crate::frame::{self, node_of};
use crate::group::{Birth, Found, Group, Timing};
use crate::guard;

/// Maximum number of `ready` results of one group in a turn; the others follow in the next turn.
const ROUNDS: usize = 4;
/// Number of parts of the sleeping groups. Each call of `watch_some` serves one part, so that the heartbeats of many
/// groups share a batch.
const WATCH_PARTS: usize = 12;
const BOOT_BITS: u32 = 24;
const READ_BITS: u32 = 40;

/// The error of a call for one group.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    Unknown(u64),
    Quarantined(String),
    Refused(String),
}

/// Frames for one node.
#[derive(Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    /// Group, index and term of each entry in the frames that has a payload, in their order.
    pub payloads: Vec<(u64, u64, u64)>,
}

pub type Batches = BTreeMap<u32, Batch>;

/// The data of one group that must become durable. Entries replace those from `first` on.
pub struct Write {
    pub group: u64,
    pub hard: Option<HardState>,
    pub snapshot: Option<(u64, u64, ConfState, [u8; DESCRIPTOR_SIZE])>,
    pub first: u64,
    pub items: Vec<Item>,
}

/// The results of a turn.
#[derive(Default)]
pub struct Turn {
    pub token: u64, // 0: the writes need not be reported as stored
    pub must_sync: bool,
    pub batches: Batches,
    pub writes: Vec<Write>,
    pub committed: Vec<(u64, u64, Item)>,
    pub reads: Vec<(u64, u64, u64)>,
    pub roles: Vec<(u64, u64, u8, u64)>,
    pub confs: Vec<(u64, u64, ConfState)>,
    pub wanted: Vec<(u64, u64)>,
    pub snapshots: Vec<(u64, u64, u64)>, // group, peer and index of each snapshot frame
}

struct Waiting {
    slot: usize,
    number: u64,
    answers: Vec<Message>,
}

pub struct Groups {
    node: u32,
    seed: u64,
    boot: u64,
    reads: u64, // number of read contexts used since the start
    timing: Timing,
    slots: Vec<Option<Box<Group>>>, // a slot is never reused, so that a late report cannot reach another group
    by_id: HashMap<u64, usize>,
    queue: Vec<usize>,
    awake: Vec<usize>,
    silent: HashSet<u32>,
    ticks: usize,
    quarantined: BTreeMap<u64, String>,
    outstanding: VecDeque<(u64, Vec<Waiting>)>,
    tokens: u64,
}

impl Groups {
    pub fn new(node: u32, seed: u64, boot: u64, timing: Timing) -> Result<Groups, String> {
        if node == 0 {
            return Err("node 0: numbers of nodes start at 1".to_owned());
        }
        if boot >= 1 << BOOT_BITS {
            return Err(format!("boot {boot}, {} is the limit", 1u64 << BOOT_BITS));
        }
        if timing.heartbeat == 0 || timing.election <= timing.heartbeat {
            let Timing { heartbeat, election, .. } = timing;
            return Err(format!("an election timeout of {election} ticks with a heartbeat every {heartbeat}"));
        }
        if timing.watch == 0 {
            return Err("a look at sleeping groups every 0 ticks".to_owned());
        }
        Ok(Groups {
            node,
            seed,
            boot,
            reads: 0,
            timing,
            slots: Vec::new(),
            by_id: HashMap::new(),
            queue: Vec::new(),
            awake: Vec::new(),
            silent: HashSet::new(),
            ticks: 0,
            quarantined: BTreeMap::new(),
            outstanding: VecDeque::new(),
            tokens: 0,
        })
    }

    // -- groups -------------------------------------------------------------------------------------------------------

    /// Opens a group with its durable state.
    pub fn open(&mut self, id: u64, name: &str, birth: Birth) -> Result<(), String> {
        if id == 0 {
            return Err("group 0".to_owned());
        }
        if self.by_id.contains_key(&id) {
            return Err(format!("group {id} is open"));
        }
        check_birth(&birth, self.node)?;
        let seed = self.seed ^ id.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ birth.peer.rotate_left(17) ^ self.boot;
        let timing = self.timing;
        let made = guard::run(|| Group::new(id, name.to_owned(), birth, timing, seed));
        let group = made.and_then(|made| made).map_err(|text| format!("group {id} ({name}): {text}"))?;
        self.quarantined.remove(&id);
        let slot = self.slots.len();
        self.slots.push(Some(Box::new(group)));
        self.by_id.insert(id, slot);
        self.list(slot);
        Ok(())
    }

    /// Closes a group; the caller owns its files.
    pub fn close(&mut self, id: u64) -> Result<(), Failure> {
        if self.quarantined.remove(&id).is_some() {
            return Ok(());
        }
        let slot = self.by_id.remove(&id).ok_or(Failure::Unknown(id))?;
        self.slots[slot] = None;
        Ok(())
    }

    pub fn quarantined(&self) -> &BTreeMap<u64, String> {
        &self.quarantined
    }

    pub fn group(&self, id: u64) -> Result<&Group, Failure> {
        let slot = self.slot(id)?;
        self.slots[slot].as_deref().ok_or(Failure::Unknown(id))
    }

    /// Counts the open groups, and those that are awake.
    pub fn counts(&self) -> (usize, usize) {
        let listed = self.awake.iter().filter_map(|slot| self.slots[*slot].as_ref());
        (self.by_id.len(), listed.filter(|group| !group.asleep).count())
    }

    fn slot(&self, id: u64) -> Result<usize, Failure> {
        if let Some(slot) = self.by_id.get(&id) {
            return Ok(*slot);
        }
        Err(self.quarantined.get(&id).map_or(Failure::Unknown(id), |text| Failure::Quarantined(text.clone())))
    }

    /// Calls `work` with one group; returns None if the slot is empty or the call panicked.
    fn with<R>(&mut self, slot: usize, work: impl FnOnce(&mut Group, &dyn Fn(u64) -> bool) -> R) -> Option<R> {
        let silent = &self.silent;
        let group = self.slots[slot].as_mut()?;
        let done = guard::run(|| work(group, &|peer| silent.contains(&node_of(peer))));
        match done {
            Ok(result) => {
                self.list(slot);
                Some(result)
            }
            Err(text) => {
                self.quarantine(slot, &text);
                None
            }
        }
    }

    /// Adds a group to the lists that it belongs in.
    fn list(&mut self, slot: usize) {
        let Some(group) = self.slots[slot].as_mut() else { return };
        if group.is_dirty && !group.is_queued {
            group.is_queued = true;
            self.queue.push(slot);
        }
        if !group.asleep && !group.is_listed {
            group.is_listed = true;
            self.awake.push(slot);
        }
    }

    fn quarantine(&mut self, slot: usize, text: &str) {
        if let Some(group) = self.slots[slot].take() {
            self.by_id.remove(&group.id);
            self.quarantined.insert(group.id, format!("group {} ({}): {text}", group.id, group.name));
            std::mem::forget(group); // after a panic, not even its destructor can be trusted
        }
    }

    fn call<R>(&mut self, id: u64, work: impl FnOnce(&mut Group) -> Result<R, String>) -> Result<R, Failure> {
        let slot = self.slot(id)?;
        match self.with(slot, |group, _| work(group)) {
            Some(done) => done.map_err(|text| Failure::Refused(format!("group {id}: {text}"))),
            None => Err(self.slot(id).err().unwrap_or(Failure::Unknown(id))),
        }
    }

    // -- input --------------------------------------------------------------------------------------------------------

    /// Advances the time of every awake group by one tick, and calls `watch` for some of the sleeping groups.
    pub fn tick(&mut self) {
        self.watch_some();
        self.ticks = self.ticks.wrapping_add(1);
        let listed = std::mem::take(&mut self.awake);
        let mut still = Vec::with_capacity(listed.len());
        for slot in listed {
            self.with(slot, |group, silent| group.tick(&silent));
            let Some(group) = self.slots[slot].as_mut() else { continue };
            group.is_listed = !group.asleep;
            if group.is_listed {
                still.push(slot);
            }
        }
        still.append(&mut self.awake);
        self.awake = still;
    }

    /// Calls `watch` for one part of the groups, if it is due; each group gets a call within `watch` ticks.
    fn watch_some(&mut self) {
        let parts = WATCH_PARTS.min(self.timing.watch);
        let ticks = self.timing.watch / parts;
        if self.ticks % ticks != 0 {
            return;
        }
        for slot in (self.ticks / ticks % parts..self.slots.len()).step_by(parts) {
            self.with(slot, |group, _| group.watch());
        }
    }

    /// Handles a batch of frames, all or none; returns group and sender of each frame whose group is not open here.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Vec<(u64, u64)>, String> {
        let frames = frame::decode_all(bytes)?;
        let mut unknown = Vec::new();
        for one in frames {
            let (id, from, to) = (one.group, one.message.from, one.message.to);
            match self.slot(id) {
                // A frame for a former peer of this node is treated like one for a closed group.
                Ok(slot) if self.slots[slot].as_ref().is_some_and(|group| group.peer == to) => {
                    self.with(slot, |group, silent| group.step(one, &silent));
                }
                Ok(_) | Err(Failure::Unknown(_)) => unknown.push((id, from)),
                Err(_) => {}
            }
        }
        Ok(unknown)
    }

    /// Proposes an entry; returns its index and term, or None if this node does not lead.
    pub fn propose(&mut self, id: u64, descriptor: [u8; DESCRIPTOR_SIZE]) -> Option<(u64, u64)> {
        let slot = self.slot(id).ok()?;
        self.with(slot, |group, _| group.propose(descriptor)).flatten()
    }

    pub fn change(&mut self, id: u64, changes: &[(u8, u64)]) -> Result<(u64, u64), Failure> {
        let body = entry::body_of_changes(changes).map_err(Failure::Refused)?;
        if changes.is_empty() {
            return Err(Failure::Refused(format!("group {id}: no changes")));
        }
        self.call(id, |group| group.change(&body))
    }

    pub fn transfer(&mut self, id: u64, to: u64) -> Result<(), Failure> {
        self.call(id, |group| group.transfer(to))
    }

    pub fn campaign(&mut self, id: u64) -> Result<(), Failure> {
        self.call(id, Group::campaign)
    }

    /// Requests the index of a linearizable read; returns the number under which `ready` reports it.
    pub fn read_index(&mut self, id: u64) -> Result<u64, Failure> {
        // A number is never reused, not even after a restart: an old answer to it would allow a stale read.
        assert!(self.reads < 1 << READ_BITS);
        self.reads += 1;
        let context = self.boot << READ_BITS | self.reads;
        self.call(id, |group| group.read_index(frame::context_of_read(group.peer, context)))?;
        Ok(context)
    }

    pub fn set_prompt(&mut self, id: u64, is_prompt: bool) -> Result<(), Failure> {
        self.call(id, |group| {
            group.set_prompt(is_prompt);
            Ok(())
        })
    }

    pub fn set_doubtful(&mut self, id: u64, is_doubtful: bool) -> Result<(), Failure> {
        self.call(id, |group| {
            group.set_doubtful(is_doubtful);
            Ok(())
        })
    }

    pub fn set_floor(&mut self, id: u64, term: u64, index: u64) -> Result<(), Failure> {
        self.call(id, |group| {
            group.set_floor(term, index);
            Ok(())
        })
    }

    pub fn forget_answers(&mut self, id: u64, peer: u64) -> Result<(), Failure> {
        self.call(id, |group| group.forget_answers(peer))
    }

    pub fn report_snapshot(&mut self, id: u64, peer: u64, is_done: bool) -> Result<(), Failure> {
        self.call(id, |group| {
            group.report_snapshot(peer, is_done);
            Ok(())
        })
    }

    /// Handles a node that does not answer.
    pub fn node_silent(&mut self, node: u32) -> Result<(), String> {
        if node == 0 {
            // groups without a leader have 0 as the leader's node
            return Err("node 0: numbers of nodes start at 1".to_owned());
        }
        if node == self.node || !self.silent.insert(node) {
            return Ok(());
        }
        for slot in 0..self.slots.len() {
            self.with(slot, |group, silent| group.node_silent(node, &silent));
        }
        Ok(())
    }

    /// Handles a node that answers again.
    pub fn node_heard(&mut self, node: u32) {
        if !self.silent.remove(&node) {
            return;
        }
        for slot in 0..self.slots.len() {
            self.with(slot, |group, _| group.node_heard(node));
        }
    }

    // -- output -------------------------------------------------------------------------------------------------------

    /// Returns whether `ready` may return anything.
    pub fn has_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns everything that the groups have ready.
    pub fn ready(&mut self) -> Turn {
        let mut turn = Turn::default();
        let mut waiting = Vec::new();
        for slot in std::mem::take(&mut self.queue) {
            if let Some(group) = self.slots[slot].as_mut() {
                group.is_queued = false;
            }
            for _ in 0..ROUNDS {
                match self.with(slot, |group, _| group.ready()) {
                    Some(Some(found)) => self.take(slot, found, &mut turn, &mut waiting),
                    _ => break,
                }
            }
        }
        if !waiting.is_empty() {
            self.tokens += 1;
            turn.token = self.tokens;
            self.outstanding.push_back((turn.token, waiting));
        }
        turn
    }

    fn take(&mut self, slot: usize, found: Found, turn: &mut Turn, waiting: &mut Vec<Waiting>) {
        let Some(id) = self.slots[slot].as_ref().map(|group| group.id) else { return };
        self.send(slot, &found.messages, &mut turn.batches);
        let snapshots = found.messages.iter().filter(|message| message.get_msg_type() == MessageType::MsgSnapshot);
        turn.snapshots.extend(snapshots.map(|one| (id, one.to, one.get_snapshot().get_metadata().index)));
        turn.must_sync |= found.must_sync;
        turn.committed.extend(found.committed.into_iter().map(|(index, item)| (id, index, item)));
        for (index, bytes) in found.reads {
            if let Some((_, context)) = frame::read_of_context(&bytes) {
                turn.reads.push((id, context, index));
            }
        }
        turn.roles.extend(found.role.map(|(term, role, leader)| (id, term, role, leader)));
        turn.confs.extend(found.confs.into_iter().map(|(index, conf)| (id, index, conf)));
        if found.wanted != 0 {
            turn.wanted.push((id, found.wanted));
        }
        if found.hard.is_some() || found.snapshot.is_some() || !found.items.is_empty() {
            let Found { hard, snapshot, first, items, .. } = found;
            turn.writes.push(Write { group: id, hard, snapshot, first, items });
        }
        if found.number != 0 {
            waiting.push(Waiting { slot, number: found.number, answers: found.answers });
        }
    }

    /// Records that all writes up to a token are durable; returns the frames that waited for them.
    pub fn stored(&mut self, token: u64) -> Result<Batches, String> {
        let mut batches = Batches::new();
        if token == 0 {
            return Ok(batches);
        }
        match self.outstanding.front() {
            Some((next, _)) if *next == token => {}
            Some((next, _)) => return Err(format!("token {token} is stored, token {next} comes first")),
            None => return Err(format!("token {token} is stored, none is waited for")),
        }
        for Waiting { slot, number, answers } in self.outstanding.pop_front().map_or(Vec::new(), |(_, all)| all) {
            if self.with(slot, |group, _| group.stored(number)).is_some() {
                self.send(slot, &answers, &mut batches);
            }
        }
        Ok(batches)
    }

    /// Records that a snapshot and all its data are durable; returns the frames that waited for it.
    pub fn installed(&mut self, id: u64, index: u64) -> Result<Batches, Failure> {
        let answers = self.call(id, |group| group.installed(index))?;
        let mut batches = Batches::new();
        let slot = self.slot(id)?;
        self.send(slot, &answers, &mut batches);
        Ok(batches)
    }

    fn send(&mut self, slot: usize, messages: &[Message], batches: &mut Batches) {
        let Some(group) = self.slots[slot].as_ref() else { return };
        let id = group.id;
        for message in messages {
            let flags = group.flags_of(message);
            let batch = batches.entry(node_of(message.to)).or_default();
            if let Err(text) = frame::encode(&mut batch.bytes, id, message, flags) {
                batches.retain(|_, batch| !batch.bytes.is_empty());
                return self.quarantine(slot, &text);
            }
            if message.get_msg_type() == MessageType::MsgAppend {
                let with_payload = message
                    .entries
                    .iter()
                    .filter(|entry| entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty());
                batch.payloads.extend(with_payload.map(|entry| (id, entry.index, entry.term)));
            }
        }
    }

    // -- the log ------------------------------------------------------------------------------------------------------

    pub fn compact(&mut self, id: u64, index: u64) -> Result<(u64, u64, ConfState), Failure> {
        self.call(id, |group| group.compact(index))
    }

    pub fn offer(&mut self, id: u64, index: u64, descriptor: [u8; DESCRIPTOR_SIZE]) -> Result<(), Failure> {
        self.call(id, |group| group.offer(index, descriptor))
    }
}

/// Returns group, index, term and descriptor of each entry with a payload in a batch, so that the caller can check
/// the payloads before `step`.
///
/// All frames except forwarded read requests must be from peers on `node`; 0 means any node.
pub fn payloads_of(bytes: &[u8], node: u32) -> Result<Vec<(u64, u64, u64, [u8; DESCRIPTOR_SIZE])>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (one, size) = frame::decode(&bytes[at..]).map_err(|text| format!("frame at byte {at}: {text}"))?;
        let (kind, sender) = (one.message.get_msg_type(), node_of(one.message.from));
        if node != 0 && sender != node && kind != MessageType::MsgReadIndex {
            return Err(format!("frame at byte {at}: from node {sender} in a batch of node {node}"));
        }
        at += size;
        if kind != MessageType::MsgAppend {
            continue;
        }
        for one_entry in one.message.entries.iter() {
            let item = entry::item_of_entry(one_entry)?;
            if item.kind == DATA {
                found.push((one.group, one_entry.index, one_entry.term, item.body));
            }
        }
    }
    Ok(found)
}

fn check_birth(birth: &Birth, node: u32) -> Result<(), String> {
    if node_of(birth.peer) != node {
        return Err(format!("peer {} is of node {}, this is node {node}", birth.peer, node_of(birth.peer)));
    }
    let is_new = birth.conf == ConfState::default();
    if is_new != (birth.start == 0) {
        return Err(format!("start {} with {} voters", birth.start, birth.conf.voters.len()));
    }
    if is_new && !birth.items.is_empty() {
        return Err("entries of a peer that waits for its first snapshot".to_owned());
    }
    if !is_new {
        frame::check_conf(&birth.conf)?;
    }
    frame::check_number(birth.hard.term, "term")?;
    if birth.hard.vote != 0 {
        frame::peer(birth.hard.vote, "vote")?;
    }
    frame::check_number(birth.start, "start")?;
    if (birth.start == 0) != (birth.start_term == 0) {
        return Err(format!("start {} of term {}", birth.start, birth.start_term));
    }
    let mut term = birth.start_term;
    for (at, item) in birth.items.iter().enumerate() {
        entry::check_item(item).map_err(|text| format!("entry {}: {text}", birth.start + 1 + at as u64))?;
        if item.term < term {
            return Err(format!("entry {}: term {} after {term}", birth.start + 1 + at as u64, item.term));
        }
        term = item.term;
    }
    if birth.hard.term < term {
        return Err(format!("the log has term {term}, the vote is of term {}", birth.hard.term));
    }
    Ok(())
}
