//! One group: the engine's node for it, its sleep, and a snapshot that is being installed.
//!
//! Knows nothing of other groups, the bytes of frames, or disks. Randomness comes from a seed, and time from calls of
//! `tick`.
//!
//! A sleeping group is not ticked. When all peers of a leader have every entry, its heartbeats ask them to sleep; it
//! sleeps itself when all have answered. Every message except these heartbeats and answers wakes a group.

use raft::eraftpb::{ConfState, HardState, Message, MessageType};
use raft::{Changer, Config, Progress, ProgressState, RawNode, SnapshotStatus, StateRole, Storage};

use crate::entry::{conf_change_of, item_of_entry, Item, CHANGE, DESCRIPTOR_SIZE};
use crate::frame::{check_size, node_of, Frame, QUIET, SLEEP};
use crate::log::{Log, ENTRY_COST};

/// Maximum number of entries that the engine puts into one message; it may join messages.
const MESSAGE_ENTRIES: u64 = 64;
/// Maximum number of unanswered messages to a peer.
const INFLIGHT_MAX: usize = 64;
/// A follower wakes after this many calls of `watch` without a message from its sleeping leader.
const UNHEARD_MAX: u32 = 3;
/// Maximum number of committed entries returned in one turn.
const COMMITTED_MAX: u64 = 16_384;
/// Start of the panic text of a replica whose committed entries differ from those of the group.
const CONTRADICTED: &str = "the group has lost entries that are committed here";
/// A floor that no log reaches: no vote is allowed.
const NOBODY: (u64, u64) = (u64::MAX, u64::MAX);

/// The settings that all groups of a node share.
#[derive(Clone, Copy)]
pub struct Timing {
    pub heartbeat: usize, // ticks between two heartbeats
    pub election: usize,  // a follower waits for its leader for one to two times this number of ticks, at random
    pub sleep: u32,       // number of ticks for which a leader is idle before it asks its peers to sleep
    pub stagger: usize,   // ticks between the elections of two candidates after their leader is known to be lost
    pub watch: usize,     // ticks between two calls of `watch` for a sleeping group, at most
}

/// The membership and the log with which a group is opened.
pub struct Birth {
    pub peer: u64,
    pub hard: HardState,
    pub start: u64,
    pub start_term: u64,
    pub conf: ConfState,
    pub items: Vec<Item>,
}

/// A snapshot that was received but is not durable yet.
struct Installing {
    index: u64,
    commit: u64,           // commit index of the log on disk, which precedes the snapshot
    ready: u64,            // number of the `ready` that returned the snapshot
    stored: u64,           // number of the last `ready` whose other parts are durable
    answers: Vec<Message>, // messages that wait until the snapshot is durable
}

/// The results of one `ready` of a group.
#[derive(Default)]
pub struct Found {
    pub number: u64,
    pub hard: Option<HardState>,
    pub snapshot: Option<(u64, u64, ConfState, [u8; DESCRIPTOR_SIZE])>,
    pub first: u64,
    pub items: Vec<Item>,
    pub must_sync: bool,
    pub messages: Vec<Message>, // may be sent at once
    pub answers: Vec<Message>,  // may be sent when everything above is durable
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
    drawn_for: (u64, StateRole), // term and role for which the timeout was drawn
    timeout: usize,
    pub asleep: bool,
    pub is_dirty: bool,  // `ready` must be called for this group
    pub is_queued: bool, // the group is in the queue of `ready`
    pub is_listed: bool, // the group is in the list of ticked groups
    quiet: u32,          // ticks since the group became idle
    sleepers: Vec<u64>,  // peers that have answered that they are asleep
    unheard: u32,        // calls of `watch` for a sleeping follower since the last message of its leader
    unstored: u32,       // results of `ready` that are not reported as stored yet
    is_prompt: bool,     // as the leader, send a new commit index to the peers at once
    told: u64,           // commit index in the newest append that was sent
    ripe: u64,           // commit index one tick ago
    is_doubtful: bool,   // the peer may lack entries that it has acknowledged
    floor: (u64, u64),   // in doubt: term and index that the last entry of an acceptable candidate must have at least
    installing: Option<Installing>,
}

impl Group {
    pub fn new(id: u64, name: String, birth: Birth, timing: Timing, seed: u64) -> Result<Group, String> {
        let Birth { peer, mut hard, start, start_term, conf, items } = birth;
        let last = start + items.len() as u64;
        // The commit index is written without a sync, so it may be ahead of entries that a power failure has removed.
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

    // -- randomness and time ------------------------------------------------------------------------------------------

    /// Draws the election timeout. Replaces the engine's own draw, which uses a thread-local source of randomness.
    fn draw(&mut self) {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.timeout = self.timing.election + (mixed % self.timing.election as u64) as usize;
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }

    /// Updates the timeout and `is_dirty` after a call of the engine.
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

    /// Advances the time by one tick. `silent` returns whether a peer's node is known to be lost.
    pub fn tick(&mut self, silent: &impl Fn(u64) -> bool) {
        let is_leader = self.is_leader();
        if !is_leader && (self.installing.is_some() || self.unstored > 0 || !self.may_stand()) {
            // Not a candidate until all received entries are durable; but count the time, so that this peer can vote
            // for a new leader.
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

    /// As a leader that is not prompt, sends the commit index of a tick ago, unless an append has already included
    /// it.
    fn tell_commit(&mut self) {
        let ripe = std::mem::replace(&mut self.ripe, self.raw.raft.raft_log.committed);
        if !self.is_prompt && self.told < ripe {
            self.raw.raft.bcast_append();
        }
    }

    /// Sets whether peers get a new commit index at once, or with the next append or within two ticks.
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

    /// Returns the flags of a message, in addition to those that follow from the message itself.
    pub fn flags_of(&self, message: &Message) -> u8 {
        let sleep = if self.asks_for_sleep() { SLEEP } else { 0 };
        sleep | if self.is_known(message) { QUIET } else { 0 }
    }

    /// Returns whether a message is an append that only reports a commit index, so that its acceptance is no news.
    fn is_known(&self, message: &Message) -> bool {
        let is_told = |progress: &Progress| {
            progress.state == ProgressState::Replicate && progress.matched >= message.index
        };
        message.get_msg_type() == MessageType::MsgAppend
            && message.entries.is_empty()
            && self.is_leader()
            && self.raw.raft.prs().get(message.to).is_some_and(is_told)
    }

    /// Returns whether heartbeats and their answers have the flag SLEEP now.
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
            // In any state of the progress: after a silence without new entries, the engine keeps it in Probe.
            && raft.prs().iter().all(|(peer, progress)| {
                silent(*peer) || *peer == self.peer || progress.matched == last
            })
    }

    /// Checks a sleeping group: a leader sends a heartbeat; a follower that has received none for too long wakes.
    ///
    /// This is needed because a node can lose the leader of a group, by a panic or a close, and still answer.
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

    /// Passes a message of a peer to the engine.
    pub fn step(&mut self, frame: Frame, silent: &impl Fn(u64) -> bool) {
        let Frame { flags, mut message, .. } = frame;
        let (kind, from, term, commit) = (message.get_msg_type(), message.from, message.term, message.commit);
        let is_sleep = flags & SLEEP != 0;
        let is_watched = self.asleep && self.unheard > 0;
        let waiting = self.raw.raft.msgs.len();
        if self.installing.is_some() && is_for_the_log(kind) {
            return; // the sender will repeat the message
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
                return; // the candidate may also lack entries that this peer has acknowledged
            }
            if kind == MessageType::MsgHeartbeat && commit > self.raw.raft.raft_log.last_index() {
                message.commit = 0; // the leader does not know yet that this peer lacks these entries
            }
        }
        if let Some(index) = self.contradicted(&message) {
            panic!("{CONTRADICTED}, such as {index}");
        }
        if kind == MessageType::MsgAppendResponse && !message.reject && message.index > self.last_index() {
            return; // the peer has entries that this leader lacks; the next append detects this
        }
        if kind == MessageType::MsgReadIndex && from == self.raw.raft.leader_id {
            return; // the peer asked before it became leader: the engine would send the request back to it
        }
        if kind == MessageType::MsgHeartbeatResponse && !self.asleep && !is_sleep {
            self.sleepers.retain(|peer| *peer != from);
        } else if !is_sleep {
            self.wake();
        }
        // The engine refuses answers of unknown peers; such an error needs no handling.
        let _ = self.raw.step(message);
        if flags & QUIET != 0 {
            self.drop_answer(waiting, MessageType::MsgAppendResponse);
        }
        if is_sleep && !silent(from) {
            self.take_sleep(kind, from, term, commit);
            // A leader that does not sleep yet repeats its heartbeat before the next `watch`, and that is answered.
            if is_watched && self.asleep && kind == MessageType::MsgHeartbeat {
                self.drop_answer(waiting, MessageType::MsgHeartbeatResponse);
            }
        }
        self.mark();
    }

    /// Returns the index of an appended entry if another entry is committed there: the group lost it in a power
    /// failure.
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

    /// Drops an answer of `kind`, which its receiver does not need; `waiting` messages were queued before it.
    fn drop_answer(&mut self, waiting: usize, kind: MessageType) {
        let messages = &mut self.raw.raft.msgs;
        if messages.len() == waiting + 1
            && messages.last().is_some_and(|one| one.get_msg_type() == kind && !one.reject)
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

    /// Appends an entry; returns its index and term, or None if this node does not lead or is transferring the
    /// leadership.
    pub fn propose(&mut self, descriptor: [u8; DESCRIPTOR_SIZE]) -> Option<(u64, u64)> {
        self.wake(); // followers wake too, since their leader may be lost
        if !self.is_leader() {
            return None;
        }
        let done = self.raw.propose(Vec::new(), descriptor.to_vec());
        self.mark();
        done.ok().map(|()| (self.raw.raft.raft_log.last_index(), self.raw.raft.term))
    }

    /// Proposes membership changes, all as one entry.
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

    /// Transfers the leadership to another voter.
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

    /// Requests the index that a linearizable read needs; a later `ready` returns it.
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

    /// Starts an election with this peer as the candidate.
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

    /// Sets whether this peer may lack entries that it has acknowledged; if so, it takes no part in elections.
    pub fn set_doubtful(&mut self, is_doubtful: bool) {
        (self.is_doubtful, self.floor) = (is_doubtful, NOBODY);
        self.wake();
        self.mark();
    }

    /// Lets a peer in doubt vote for candidates whose last entry is the given one or a later one.
    pub fn set_floor(&mut self, term: u64, index: u64) {
        self.floor = (term, index);
        self.wake();
        self.mark();
    }

    fn may_stand(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        !self.is_doubtful || (log.last_term(), log.last_index()) >= self.floor
    }

    /// Forgets the acknowledgements of a peer, which may have lost some of these entries.
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

    // -- lost and returned nodes --------------------------------------------------------------------------------------

    /// Handles the loss of a node: starts an election if the leader was on that node; wakes a leader without a quorum.
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
        // Even if this peer cannot be elected: while it has a leader, it would not vote for a candidate.
        self.raw.raft.become_follower(term, 0);
        self.mark();
        let Some(rank) = self.rank(silent) else { return };
        let stagger = self.timing.stagger;
        if rank == 0 && self.campaign().is_ok() {
            // The other peers may not know of the loss yet: campaign again soon.
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
            self.wake(); // a leader without a quorum must step down
        }
        self.mark();
    }

    /// Returns whether a majority of the voters is on nodes that answer.
    fn has_quorum(&self, silent: &impl Fn(u64) -> bool) -> bool {
        let conf = self.raw.store().conf();
        [&conf.voters, &conf.voters_outgoing].iter().all(|voters| {
            voters.is_empty() || voters.iter().filter(|peer| !silent(**peer)).count() * 2 > voters.len()
        })
    }

    /// Returns this peer's position in the order of candidates after a lost leader; the order differs between groups.
    fn rank(&self, silent: &impl Fn(u64) -> bool) -> Option<usize> {
        let mut voters: Vec<u64> = self.raw.store().conf().voters.iter().copied().filter(|p| !silent(*p)).collect();
        voters.sort_unstable();
        let at = voters.iter().position(|peer| *peer == self.peer)?;
        let first = (self.id % voters.len() as u64) as usize;
        Some((at + voters.len() - first) % voters.len())
    }

    /// Wakes the group if this node leads it and the node that answers again has one of its peers.
    pub fn node_heard(&mut self, node: u32) {
        if self.is_leader() && self.others().any(|peer| node_of(peer) == node) {
            self.wake();
            self.raw.ping();
            self.mark();
        }
    }

    // -- storing ------------------------------------------------------------------------------------------------------

    /// Returns the results that the engine has ready; None if there are none.
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
        // If this peer has lost the leadership in this turn, its answers may refer to entries that are no longer in
        // its log.
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
            // The log before the snapshot may end with entries that were never committed. A restart must not treat
            // them as committed because the snapshot's index is higher.
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

    /// Corrects the index before the first entry of a message.
    ///
    /// The engine may add entries to a waiting message without checking its index, which is wrong if the next index
    /// of the peer has decreased meanwhile. Entries in a message have their own indexes; in a frame, indexes follow
    /// from the first one.
    fn put_entries_in_place(&self, message: &mut Message) {
        if is_in_place(message) {
            return;
        }
        let first = message.entries[0].index;
        match self.raw.raft.raft_log.term(first - 1) {
            Ok(term) if term > 0 || first == 1 => (message.index, message.log_term) = (first - 1, term),
            _ => message.entries.clear(), // the entry before it was compacted: the peer is asked again
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

    /// Adds a committed entry to `found`; a membership change takes effect here.
    fn apply(&mut self, index: u64, found: &mut Found) {
        let item = *self.raw.store().item(index).expect("a committed entry is in the log");
        found.committed.push((index, item));
        if item.kind != CHANGE {
            return;
        }
        // Every peer gets the same result, so every peer ignores a change that is impossible.
        if let Ok(conf) = self.raw.apply_conf_change(&conf_change_of(&item.body)) {
            self.raw.mut_store().set_conf(index, conf.clone());
            if self.is_leader() && !conf.voters.contains(&self.peer) && conf.voters_outgoing.is_empty() {
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, 0);
            }
            found.confs.push((index, conf));
        }
    }

    /// Separates the messages that may be sent at once from those that must wait until entries are durable.
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
            found.number = 0; // the caller need not report this one as stored
        } else {
            self.unstored += 1;
        }
    }

    /// Records that everything in a `ready` is durable except a snapshot, which `installed` reports.
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

    /// Records that a snapshot and all its data are durable; returns the answers that waited for this.
    pub fn installed(&mut self, index: u64) -> Result<Vec<Message>, String> {
        let Some(installing) = self.installing.take_if(|one| one.index == index && one.stored >= one.ready) else {
            return Err(format!("no snapshot at index {index} is being installed and stored"));
        };
        self.raw.on_persist_ready(installing.stored);
        self.raw.advance_apply_to(index);
        self.mark();
        Ok(installing.answers)
    }

    /// Removes the log up to `index`; the caller has made that state durable.
    pub fn compact(&mut self, index: u64) -> Result<(u64, u64, ConfState), String> {
        let applied = self.raw.raft.raft_log.applied;
        if index > applied {
            return Err(format!("index {index} has not been applied, {applied} has"));
        }
        self.raw.mut_store().compact(index)
    }

    /// Offers the state at `index` to peers that need compacted entries.
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

    /// Returns the entry at an index, committed or not.
    pub fn entry(&self, index: u64) -> Option<Item> {
        self.raw.store().item(index).copied()
    }

    /// Returns the term of an index, if the log has it.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        Storage::term(self.raw.store(), index).ok()
    }
}

/// Returns whether the entries of a message follow its index. (A read has its context in an entry without an index.)
fn is_in_place(message: &Message) -> bool {
    let first = message.entries.first().map_or(message.index + 1, |entry| entry.index);
    message.get_msg_type() != MessageType::MsgAppend || first == message.index + 1
}

fn is_for_the_log(kind: MessageType) -> bool {
    matches!(kind, MessageType::MsgAppend | MessageType::MsgSnapshot | MessageType::MsgTimeoutNow)
}
