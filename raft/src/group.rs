//! One group: the engine's node for it, its sleep, and its snapshots that are being installed.
//!
//! Knows nothing of other groups, frames' bytes or disks. Chance comes in as a seed, time as calls of `tick`.
//!
//! Asleep means: not ticked. A leader whose peers have everything asks them to sleep with each heartbeat, and
//! sleeps when all have answered. Everything but these two messages wakes.

use raft::eraftpb::{ConfState, HardState, Message, MessageType};
use raft::{Changer, Config, Progress, ProgressState, RawNode, SnapshotStatus, StateRole, Storage};

use crate::entry::{conf_change_of, item_of_entry, Item, CHANGE, DESCRIPTOR_SIZE};
use crate::frame::{check_size, node_of, Frame, QUIET, SLEEP};
use crate::log::{Log, ENTRY_COST};

/// Entries that the engine puts into a message at once; it may join messages.
const MESSAGE_ENTRIES: u64 = 64;
/// Messages to a peer that may be without an answer.
const INFLIGHT_MAX: usize = 64;
/// A follower wakes when so many looks have found that its leader said nothing in its sleep.
const UNHEARD_MAX: u32 = 3;
/// Committed entries that one turn hands out.
const COMMITTED_MAX: u64 = 16_384;
/// Begins the panic of a replica whose committed entries are not those of the group.
const CONTRADICTED: &str = "the group has lost entries that are committed here";
/// No log has so much.
const NOBODY: (u64, u64) = (u64::MAX, u64::MAX);

/// What all groups of a node share.
#[derive(Clone, Copy)]
pub struct Timing {
    pub heartbeat: usize, // ticks between two heartbeats
    pub election: usize,  // a follower waits so many ticks for its leader, up to twice as many by chance
    pub sleep: u32,       // a settled leader waits so many ticks before it asks for sleep
    pub stagger: usize,   // ticks between two candidates for a leader that is known to be gone
    pub watch: usize,     // ticks between two looks at a group that sleeps
}

/// The membership and log with which a group begins.
pub struct Birth {
    pub peer: u64,
    pub hard: HardState,
    pub start: u64,
    pub start_term: u64,
    pub conf: ConfState,
    pub items: Vec<Item>,
}

/// A snapshot that was received and is not durable yet.
struct Installing {
    index: u64,
    commit: u64,           // what the log on the disk, the one from before it, has committed
    ready: u64,            // number of the ready that had it
    stored: u64,           // number of the last ready whose other parts are durable
    answers: Vec<Message>, // wait for it
}

/// What one `ready` of a group found.
#[derive(Default)]
pub struct Found {
    pub number: u64,
    pub hard: Option<HardState>,
    pub snapshot: Option<(u64, u64, ConfState, [u8; DESCRIPTOR_SIZE])>,
    pub first: u64,
    pub items: Vec<Item>,
    pub must_sync: bool,
    pub messages: Vec<Message>, // may leave at once
    pub answers: Vec<Message>,  // leave when everything above is durable
    pub committed: Vec<(u64, Item)>,
    pub reads: Vec<(u64, Vec<u8>)>,
    pub confs: Vec<(u64, ConfState)>,
    pub role: Option<(u64, u8, u64)>, // term, role, leader
    pub wanted: u64,
}

pub struct Group {
    pub id: u64,
    pub name: String,
    pub peer: u64,
    raw: RawNode<Log>,
    timing: Timing,
    chance: u64,
    drawn_for: (u64, StateRole), // the timeout was drawn when these began
    timeout: usize,
    pub asleep: bool,
    pub is_dirty: bool,  // `ready` must look at it
    pub is_queued: bool, // in the queue of `ready`
    pub is_listed: bool, // among those that are ticked
    quiet: u32,          // ticks since it is settled
    sleepers: Vec<u64>,  // peers that have answered that they sleep
    unheard: u32,        // looks at a sleeping follower since its leader said something
    unstored: u32,       // readies handed out and not stored
    is_prompt: bool,     // a leader tells its peers at once what is committed
    told: u64,           // commit index of the newest append that has left
    ripe: u64,           // commit index of a tick ago
    is_doubtful: bool,   // it may lack entries that it has answered for
    floor: (u64, u64),   // in doubt: term and index of the last entry that who is elected must have
    installing: Option<Installing>,
}

impl Group {
    pub fn new(id: u64, name: String, birth: Birth, timing: Timing, seed: u64) -> Result<Group, String> {
        let Birth { peer, mut hard, start, start_term, conf, items } = birth;
        let last = start + items.len() as u64;
        // The commit index is written without a sync: it may be ahead of entries that a power cut has taken.
        hard.commit = hard.commit.clamp(start, last);
        let config = Config {
            id: peer,
            election_tick: timing.election,
            heartbeat_tick: timing.heartbeat,
            applied: start,
            max_size_per_msg: MESSAGE_ENTRIES * ENTRY_COST,
            max_inflight_msgs: INFLIGHT_MAX,
            max_committed_size_per_ready: COMMITTED_MAX * ENTRY_COST,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            ..Config::default()
        };
        let log = Log::new(hard, start, start_term, conf, items);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).map_err(|error| error.to_string())?;
        let drawn_for = (raw.raft.term, raw.raft.state);
        let mut group = Group {
            id,
            name,
            peer,
            raw,
            timing,
            chance: seed,
            drawn_for,
            timeout: 0,
            asleep: false,
            is_dirty: false,
            is_queued: false,
            is_listed: false,
            quiet: 0,
            sleepers: Vec::new(),
            unheard: 0,
            unstored: 0,
            is_prompt: true,
            told: 0,
            ripe: 0,
            is_doubtful: false,
            floor: NOBODY,
            installing: None,
        };
        group.draw();
        group.mark();
        Ok(group)
    }

    // -- chance and time ----------------------------------------------------------------------------------------------

    /// Draws the election timeout. The engine's own draw, from a source of the thread, is replaced.
    fn draw(&mut self) {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.timeout = self.timing.election + (mixed % self.timing.election as u64) as usize;
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }

    /// Brings timeout and marks up to date after the engine has done something.
    fn mark(&mut self) {
        let now = (self.raw.raft.term, self.raw.raft.state);
        if now != self.drawn_for {
            self.drawn_for = now;
            self.draw();
        } else {
            self.raw.raft.set_randomized_election_timeout(self.timeout);
        }
        self.is_dirty |= self.raw.has_ready();
    }

    /// Lets one tick pass. `silent` tells whether a peer's node is known to be gone.
    pub fn tick(&mut self, silent: &impl Fn(u64) -> bool) {
        let is_leader = self.is_leader();
        if !is_leader && (self.installing.is_some() || self.unstored > 0 || !self.may_stand()) {
            // No candidate before what it has taken is durable; but its lost leader must not keep its vote.
            self.raw.raft.election_elapsed += 1;
            return;
        }
        if is_leader {
            self.count_quiet(silent);
            if self.asleep {
                return;
            }
            self.tell_commit();
        }
        self.raw.tick();
        self.mark();
    }

    /// Tells the peers of a leader that is not prompt what has been committed for a tick, if no append has told them.
    fn tell_commit(&mut self) {
        let ripe = std::mem::replace(&mut self.ripe, self.raw.raft.raft_log.committed);
        if !self.is_prompt && self.told < ripe {
            self.raw.raft.bcast_append();
        }
    }

    /// Decides whether peers are told at once what is committed, or by the next append or within two ticks.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        self.is_prompt = is_prompt;
        self.raw.skip_bcast_commit(!is_prompt);
    }

    fn count_quiet(&mut self, silent: &impl Fn(u64) -> bool) {
        if !self.is_settled(silent) {
            self.quiet = 0;
            self.sleepers.clear();
            return;
        }
        self.quiet = self.quiet.saturating_add(1);
        if self.asks_for_sleep()
            && self.has_quorum(silent)
            && self.others().all(|peer| silent(peer) || self.sleepers.contains(&peer))
        {
            self.asleep = true;
        }
    }

    /// Returns the flags of a message beside those that it has itself.
    pub fn flags_of(&self, message: &Message) -> u8 {
        let sleep = if self.asks_for_sleep() { SLEEP } else { 0 };
        sleep | if self.is_known(message) { QUIET } else { 0 }
    }

    /// Tells whether a message is an append whose acceptance would say nothing new: it only tells what is committed.
    fn is_known(&self, message: &Message) -> bool {
        let is_told = |progress: &Progress| {
            progress.state == ProgressState::Replicate && progress.matched >= message.index
        };
        message.get_msg_type() == MessageType::MsgAppend
            && message.entries.is_empty()
            && self.is_leader()
            && self.raw.raft.prs().get(message.to).is_some_and(is_told)
    }

    /// Tells whether heartbeats and their answers carry the flag for sleep now.
    fn asks_for_sleep(&self) -> bool {
        if self.is_leader() {
            self.quiet > self.timing.sleep
        } else {
            self.asleep
        }
    }

    fn others(&self) -> impl Iterator<Item = u64> + '_ {
        self.raw.raft.prs().iter().map(|(peer, _)| *peer).filter(|peer| *peer != self.peer)
    }

    fn is_settled(&self, silent: &impl Fn(u64) -> bool) -> bool {
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        raft.raft_log.committed == last
            && raft.raft_log.applied == last
            && raft.raft_log.persisted == last
            && raft.lead_transferee.is_none()
            && raft.pending_read_count() == 0
            && self.raw.store().conf().voters_outgoing.is_empty()
            && raft.commit_to_current_term()
            && raft.prs().iter().all(|(peer, progress)| {
                silent(*peer)
                    || *peer == self.peer
                    || (progress.matched == last && progress.state == ProgressState::Replicate)
            })
    }

    /// Looks after a sleeping group: a leader says that it is there, a follower that hears nothing of it wakes.
    ///
    /// A node can lose the leader of a group, by a panic or a close, and answer as before.
    pub fn watch(&mut self) {
        if !self.asleep {
            return;
        }
        if self.is_leader() {
            self.raw.ping();
            self.mark();
            return;
        }
        self.unheard += 1;
        if self.unheard >= UNHEARD_MAX {
            self.wake();
        }
    }

    pub fn wake(&mut self) {
        self.asleep = false;
        self.quiet = 0;
        self.sleepers.clear();
    }

    // -- messages -----------------------------------------------------------------------------------------------------

    /// Gives a message of a peer to the engine.
    pub fn step(&mut self, frame: Frame, silent: &impl Fn(u64) -> bool) {
        let Frame { flags, mut message, .. } = frame;
        let (kind, from, term, commit) = (message.get_msg_type(), message.from, message.term, message.commit);
        let is_sleep = flags & SLEEP != 0;
        let waiting = self.raw.raft.msgs.len();
        if self.installing.is_some() && is_for_the_log(kind) {
            return; // its sender repeats it
        }
        if self.is_doubtful {
            let may_win = match kind {
                MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                    (message.log_term, message.index) >= self.floor
                }
                MessageType::MsgTimeoutNow => self.may_stand(),
                _ => true,
            };
            if !may_win {
                return; // it could lack what this peer has answered for, too
            }
            if kind == MessageType::MsgHeartbeat && commit > self.raw.raft.raft_log.last_index() {
                message.commit = 0; // its leader does not know yet
            }
        }
        if let Some(index) = self.contradicted(&message) {
            panic!("{CONTRADICTED}, such as {index}");
        }
        if kind == MessageType::MsgAppendResponse && !message.reject && message.index > self.last_index() {
            return; // it has committed more than this leader has: it will find that out by the next entries
        }
        if kind == MessageType::MsgReadIndex && from == self.raw.raft.leader_id {
            return; // it asked before it led: the engine would send its question back to it
        }
        if kind == MessageType::MsgHeartbeatResponse && !self.asleep && !is_sleep {
            self.sleepers.retain(|peer| *peer != from);
        } else if !is_sleep {
            self.wake();
        }
        // The engine refuses answers of peers that it does not know; nobody waits for that.
        let _ = self.raw.step(message);
        if flags & QUIET != 0 {
            self.keep_quiet(waiting);
        }
        if is_sleep && !silent(from) {
            self.take_sleep(kind, from, term, commit);
        }
        self.mark();
    }

    /// Returns an index of an append at which another entry is committed here: a power failure has taken it elsewhere.
    fn contradicted(&self, message: &Message) -> Option<u64> {
        let raft = &self.raw.raft;
        let committed = raft.raft_log.committed;
        if message.get_msg_type() != MessageType::MsgAppend || message.term < raft.term {
            return None;
        }
        let before = std::iter::once((message.index, message.log_term));
        let entries = message.entries.iter().map(|entry| (entry.index, entry.term));
        before
            .chain(entries)
            .take_while(|(index, _)| *index <= committed)
            .find(|(index, term)| raft.raft_log.term(*index).is_ok_and(|own| own != 0 && own != *term))
            .map(|(index, _)| index)
    }

    fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// Drops the answer to an append, after so many other messages, that its sender need not have.
    fn keep_quiet(&mut self, waiting: usize) {
        let messages = &mut self.raw.raft.msgs;
        if messages.len() == waiting + 1
            && messages.last().is_some_and(|one| one.get_msg_type() == MessageType::MsgAppendResponse && !one.reject)
        {
            messages.pop();
        }
    }

    fn take_sleep(&mut self, kind: MessageType, from: u64, term: u64, commit: u64) {
        let raft = &self.raw.raft;
        if term != raft.term {
            return;
        }
        if kind == MessageType::MsgHeartbeatResponse {
            if self.is_leader() && self.asks_for_sleep() && !self.sleepers.contains(&from) {
                self.sleepers.push(from);
            }
            return;
        }
        let log = &raft.raft_log;
        let has_all = log.last_index() == commit && log.committed == commit && log.persisted == commit;
        self.asleep = raft.state == StateRole::Follower && raft.leader_id == from && has_all && log.applied == commit;
        self.unheard = 0;
    }

    /// Appends an entry; returns its index and term, or None where this node does not lead or hands the lead over.
    pub fn propose(&mut self, descriptor: [u8; DESCRIPTOR_SIZE]) -> Option<(u64, u64)> {
        self.wake(); // a follower too: the leader on which it relies may be gone
        if !self.is_leader() {
            return None;
        }
        let done = self.raw.propose(Vec::new(), descriptor.to_vec());
        self.mark();
        done.ok().map(|()| (self.raw.raft.raft_log.last_index(), self.raw.raft.term))
    }

    /// Proposes changes of the membership, all in one step.
    pub fn change(&mut self, body: &[u8; DESCRIPTOR_SIZE]) -> Result<(u64, u64), String> {
        self.lead()?;
        let raft = &self.raw.raft;
        if raft.has_pending_conf() || !self.raw.store().conf().voters_outgoing.is_empty() {
            return Err("another change of the membership is under way".to_owned());
        }
        let change = conf_change_of(body);
        let mut changer = Changer::new(raft.prs());
        let (next, _) = if change.changes.len() > 1 {
            changer.enter_joint(true, &change.changes)
        } else {
            changer.simple(&change.changes)
        }
        .map_err(|error| error.to_string())?;
        let next = next.to_conf_state();
        check_size(&next)?;
        if !next.voters.contains(&self.peer) {
            return Err(format!("peer {} leads: it is removed after a transfer of the lead", self.peer));
        }
        self.wake();
        let done = self.raw.propose_conf_change(Vec::new(), change);
        self.mark();
        done.map_err(|error| error.to_string())?;
        Ok((self.raw.raft.raft_log.last_index(), self.raw.raft.term))
    }

    /// Hands the lead over to another voter.
    pub fn transfer(&mut self, to: u64) -> Result<(), String> {
        self.lead()?;
        if to == self.peer || !self.raw.store().conf().voters.contains(&to) {
            return Err(format!("peer {to} is not another voter"));
        }
        self.wake();
        self.raw.transfer_leader(to);
        self.mark();
        Ok(())
    }

    /// Asks for the index that a linearizable read needs; it comes as a read of a later `ready`.
    pub fn read_index(&mut self, context: Vec<u8>) -> Result<(), String> {
        let raft = &self.raw.raft;
        if raft.leader_id == 0 {
            return Err("no leader is known".to_owned());
        }
        if self.is_leader() && !raft.commit_to_current_term() {
            return Err("the new leader has not committed an entry of its term yet".to_owned());
        }
        self.wake();
        self.raw.read_index(context);
        self.mark();
        Ok(())
    }

    /// Stands for election now.
    pub fn campaign(&mut self) -> Result<(), String> {
        if !self.may_stand() {
            return Err("entries that it has answered for may be lost".to_owned());
        }
        if self.installing.is_some() || self.unstored > 0 {
            return Err("not durable yet".to_owned());
        }
        self.wake();
        let done = self.raw.campaign();
        self.mark();
        done.map_err(|error| error.to_string())
    }

    /// Says whether this peer may lack entries that it has answered for: it takes no part in elections then.
    pub fn set_doubtful(&mut self, is_doubtful: bool) {
        (self.is_doubtful, self.floor) = (is_doubtful, NOBODY);
        self.wake();
        self.mark();
    }

    /// Lets a peer in doubt elect those that have an entry, or a later one.
    pub fn set_floor(&mut self, term: u64, index: u64) {
        self.floor = (term, index);
        self.wake();
        self.mark();
    }

    fn may_stand(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        !self.is_doubtful || (log.last_term(), log.last_index()) >= self.floor
    }

    /// Forgets what a peer has answered: it may have lost some of that.
    pub fn forget_answers(&mut self, peer: u64) -> Result<(), String> {
        self.lead()?;
        let next = self.raw.raft.raft_log.last_index() + 1;
        let Some(progress) = self.raw.raft.mut_prs().get_mut(peer) else {
            return Err(format!("peer {peer} is not a member"));
        };
        *progress = Progress::new(next, INFLIGHT_MAX);
        progress.recent_active = true;
        self.wake();
        self.raw.ping();
        self.mark();
        Ok(())
    }

    pub fn report_snapshot(&mut self, peer: u64, is_done: bool) {
        let status = if is_done { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.wake();
        if !is_done {
            self.raw.mut_store().withdraw();
        }
        self.raw.report_snapshot(peer, status);
        self.mark();
    }

    fn lead(&self) -> Result<(), String> {
        if self.is_leader() {
            return Ok(());
        }
        Err(format!("peer {} does not lead", self.peer))
    }

    // -- nodes that come and go ---------------------------------------------------------------------------------------

    /// Takes note that a node is gone: elects without waiting where it led, wakes where the quorum is lost.
    pub fn node_silent(&mut self, node: u32, silent: &impl Fn(u64) -> bool) {
        if self.is_leader() {
            self.peer_lost(node, silent);
            return;
        }
        if node_of(self.raw.raft.leader_id) != node {
            return;
        }
        self.wake();
        let term = self.raw.raft.term;
        // Also where this peer cannot follow it: with a leader, it would not vote for another one.
        self.raw.raft.become_follower(term, 0);
        self.mark();
        let Some(rank) = self.rank(silent) else { return };
        let stagger = self.timing.stagger;
        if rank == 0 && self.campaign().is_ok() {
            // The others may not know yet: ask them again soon.
            self.raw.raft.election_elapsed = self.timeout.saturating_sub(3 * stagger);
        } else {
            self.raw.raft.election_elapsed = self.timeout.saturating_sub((rank + 1) * stagger);
        }
    }

    fn peer_lost(&mut self, node: u32, silent: &impl Fn(u64) -> bool) {
        let lost: Vec<u64> = self.others().filter(|peer| node_of(*peer) == node).collect();
        if lost.is_empty() {
            return;
        }
        for peer in lost {
            self.raw.report_unreachable(peer);
        }
        if !self.has_quorum(silent) {
            self.wake(); // it will step down
        }
        self.mark();
    }

    /// Tells whether a majority of the voters is on nodes that answer.
    fn has_quorum(&self, silent: &impl Fn(u64) -> bool) -> bool {
        let conf = self.raw.store().conf();
        [&conf.voters, &conf.voters_outgoing].iter().all(|voters| {
            voters.is_empty() || voters.iter().filter(|peer| !silent(**peer)).count() * 2 > voters.len()
        })
    }

    /// Returns this peer's place among those that may follow a lost leader; another one comes first in another group.
    fn rank(&self, silent: &impl Fn(u64) -> bool) -> Option<usize> {
        let mut voters: Vec<u64> = self.raw.store().conf().voters.iter().copied().filter(|p| !silent(*p)).collect();
        voters.sort_unstable();
        let at = voters.iter().position(|peer| *peer == self.peer)?;
        let first = (self.id % voters.len() as u64) as usize;
        Some((at + voters.len() - first) % voters.len())
    }

    /// Wakes for a node that is back, where this node leads and has a peer there.
    pub fn node_heard(&mut self, node: u32) {
        if self.is_leader() && self.others().any(|peer| node_of(peer) == node) {
            self.wake();
            self.raw.ping();
            self.mark();
        }
    }

    // -- storing ------------------------------------------------------------------------------------------------------

    /// Hands out what the engine has ready; None if it has nothing.
    pub fn ready(&mut self) -> Option<Found> {
        if !self.raw.has_ready() {
            self.is_dirty = false;
            return None;
        }
        let mut ready = self.raw.ready();
        let mut found = Found { number: ready.number(), must_sync: ready.must_sync(), ..Found::default() };
        found.hard = ready.hs().cloned();
        found.role = ready.ss().map(|soft| (self.raw.raft.term, soft.raft_state as u8, soft.leader_id));
        found.messages = ready.take_messages();
        found.messages.iter_mut().for_each(|message| self.put_entries_in_place(message));
        let appends = found.messages.iter().filter(|message| message.get_msg_type() == MessageType::MsgAppend);
        self.told = appends.map(|message| message.commit).fold(self.told, u64::max);
        found.answers = ready.take_persisted_messages();
        // Of a leader that has lost the lead in this turn: its log may have changed since.
        found.answers.retain(is_in_place);
        found.reads = ready.take_read_states().into_iter().map(|read| (read.index, read.request_ctx)).collect();
        self.take_snapshot(&ready, &mut found);
        let entries = ready.take_entries();
        if let Some(entry) = entries.first() {
            found.first = entry.index;
            found.items = entries.iter().map(|entry| item_of_entry(entry).expect("own entry")).collect();
            self.raw.mut_store().append(found.first, &found.items);
        }
        if let Some(hard) = &mut found.hard {
            self.raw.mut_store().hard = hard.clone();
            // The log from before the snapshot may end in entries that never were committed: a restart must not
            // take them for committed because the snapshot's index is behind them.
            if let Some(installing) = &self.installing {
                hard.commit = installing.commit;
            }
        }
        let committed = ready.take_committed_entries();
        self.raw.advance_append_async(ready);
        for entry in &committed {
            self.apply(entry.index, &mut found);
        }
        if let Some(last) = committed.last() {
            self.raw.advance_apply_to(last.index);
        }
        found.wanted = self.raw.store().take_wanted();
        self.hold(&mut found);
        self.is_dirty = false;
        self.mark();
        Some(found)
    }

    /// Corrects where the entries of a message begin.
    ///
    /// The engine adds entries to a waiting message that has none without a look at its index, which is wrong where
    /// the peer has gone back meanwhile. Its entries name their own indexes; in a frame they follow from the first.
    fn put_entries_in_place(&self, message: &mut Message) {
        if is_in_place(message) {
            return;
        }
        let first = message.entries[0].index;
        match self.raw.raft.raft_log.term(first - 1) {
            Ok(term) if term > 0 || first == 1 => (message.index, message.log_term) = (first - 1, term),
            _ => message.entries.clear(), // compacted meanwhile, which has no term or 0: the peer is asked again
        }
    }

    fn take_snapshot(&mut self, ready: &raft::Ready, found: &mut Found) {
        let snapshot = ready.snapshot();
        if snapshot.is_empty() {
            return;
        }
        let meta = snapshot.get_metadata();
        let mut descriptor = [0; DESCRIPTOR_SIZE];
        descriptor.copy_from_slice(&snapshot.data);
        let conf = meta.get_conf_state().clone();
        let commit = self.raw.store().hard.commit;
        self.raw.mut_store().restart(meta.index, meta.term, conf.clone());
        self.installing =
            Some(Installing { index: meta.index, commit, ready: ready.number(), stored: 0, answers: Vec::new() });
        found.snapshot = Some((meta.index, meta.term, conf, descriptor));
    }

    /// Hands out one committed entry; a change of the membership takes effect here.
    fn apply(&mut self, index: u64, found: &mut Found) {
        let item = *self.raw.store().item(index).expect("a committed entry is in the log");
        found.committed.push((index, item));
        if item.kind != CHANGE {
            return;
        }
        // Every peer finds the same in it, so every peer ignores what cannot be done.
        if let Ok(conf) = self.raw.apply_conf_change(&conf_change_of(&item.body)) {
            self.raw.mut_store().set_conf(index, conf.clone());
            if self.is_leader() && !conf.voters.contains(&self.peer) && conf.voters_outgoing.is_empty() {
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, 0);
            }
            found.confs.push((index, conf));
        }
    }

    /// Decides what may leave at once: answers that nothing must be durable for.
    fn hold(&mut self, found: &mut Found) {
        if let Some(installing) = &mut self.installing {
            let (waiting, free): (Vec<_>, Vec<_>) = std::mem::take(&mut found.answers)
                .into_iter()
                .partition(|message| message.get_msg_type() == MessageType::MsgAppendResponse);
            installing.answers.extend(waiting);
            found.answers = free;
        }
        if self.unstored == 0 && !found.must_sync {
            found.messages.append(&mut found.answers);
            self.persisted(found.number);
            found.number = 0; // nobody needs to report it
        } else {
            self.unstored += 1;
        }
    }

    /// Takes note that everything of a ready is durable but a snapshot, which `installed` reports.
    pub fn stored(&mut self, number: u64) {
        self.unstored -= 1;
        self.persisted(number);
        self.mark();
    }

    fn persisted(&mut self, number: u64) {
        match &mut self.installing {
            Some(installing) if number >= installing.ready => installing.stored = number,
            _ => self.raw.on_persist_ready(number),
        }
    }

    /// Takes note that a snapshot is durable with all its data; its answer may leave then.
    pub fn installed(&mut self, index: u64) -> Result<Vec<Message>, String> {
        let Some(installing) = self.installing.take_if(|one| one.index == index && one.stored >= one.ready) else {
            return Err(format!("no snapshot at index {index} is being installed and stored"));
        };
        self.raw.on_persist_ready(installing.stored);
        self.raw.advance_apply_to(index);
        self.mark();
        Ok(installing.answers)
    }

    /// Forgets the log up to `index`, which is durable elsewhere.
    pub fn compact(&mut self, index: u64) -> Result<(u64, u64, ConfState), String> {
        let applied = self.raw.raft.raft_log.applied;
        if index > applied {
            return Err(format!("index {index} has not been applied, {applied} has"));
        }
        self.raw.mut_store().compact(index)
    }

    /// Offers the state at `index` to peers whose entries are gone.
    pub fn offer(&mut self, index: u64, descriptor: [u8; DESCRIPTOR_SIZE]) -> Result<(), String> {
        let applied = self.raw.raft.raft_log.applied;
        if index > applied {
            return Err(format!("index {index} has not been applied, {applied} has"));
        }
        self.raw.mut_store().offer(index, descriptor)
    }

    // -- questions ----------------------------------------------------------------------------------------------------

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub fn role(&self) -> u8 {
        self.raw.raft.state as u8
    }

    pub fn raft(&self) -> &raft::Raft<Log> {
        &self.raw.raft
    }

    pub fn log(&self) -> &Log {
        self.raw.store()
    }

    /// Returns the entry at an index, whether it is committed or not.
    pub fn entry(&self, index: u64) -> Option<Item> {
        self.raw.store().item(index).copied()
    }

    /// Returns the term of an index that the log has.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        Storage::term(self.raw.store(), index).ok()
    }
}

/// Tells whether the entries of a message follow its index. (A read has its context in an entry without an index.)
fn is_in_place(message: &Message) -> bool {
    let first = message.entries.first().map_or(message.index + 1, |entry| entry.index);
    message.get_msg_type() != MessageType::MsgAppend || first == message.index + 1
}

fn is_for_the_log(kind: MessageType) -> bool {
    matches!(kind, MessageType::MsgAppend | MessageType::MsgSnapshot | MessageType::MsgTimeoutNow)
}
