//! Groups of three peers in memory: messages arrive at once, and writes are durable at once.

use std::collections::BTreeMap;

use raft::eraftpb::{ConfState, HardState};

use crate::entry::{Item, ADD_LEARNER, ADD_VOTER, DATA, DESCRIPTOR_SIZE, REMOVE};
use crate::group::{Birth, Timing};
use crate::groups::{Batches, Failure, Groups, Turn};

const GROUP: u64 = 5;
const TIMING: Timing = Timing { heartbeat: 5, election: 20, sleep: 10, stagger: 4, watch: 300 };

fn peer(node: u32) -> u64 {
    u64::from(node) << 32 | 1
}

fn birth(node: u32, voters: &[u32]) -> Birth {
    let mut conf = ConfState::default();
    conf.voters = voters.iter().map(|node| peer(*node)).collect();
    let start = u64::from(!voters.is_empty());
    let mut hard = HardState::default();
    hard.term = start;
    Birth { peer: peer(node), hard, start, start_term: start, conf, items: Vec::new() }
}

struct Cluster {
    nodes: BTreeMap<u32, Groups>,
    committed: BTreeMap<u32, Vec<u8>>, // first byte of each descriptor
    reads: Vec<(u32, u64, u64)>,
    wanted: Vec<(u32, u64)>,
    snapshots: Vec<(u32, u64)>,
    unreachable: Vec<u32>,
    sent: BTreeMap<(u32, u32), usize>, // number of batches by sender and receiver
}

impl Cluster {
    fn new(count: u32) -> Cluster {
        let all: Vec<u32> = (1..=count).collect();
        let mut cluster = Cluster {
            nodes: BTreeMap::new(),
            committed: BTreeMap::new(),
            reads: Vec::new(),
            wanted: Vec::new(),
            snapshots: Vec::new(),
            unreachable: Vec::new(),
            sent: BTreeMap::new(),
        };
        for node in &all {
            cluster.start(*node, birth(*node, &all));
        }
        cluster
    }

    fn start(&mut self, node: u32, birth: Birth) {
        let mut groups = Groups::new(node, 1, 1, TIMING).expect("is good");
        groups.open(GROUP, "orders", birth).expect("is good");
        self.nodes.insert(node, groups);
    }

    fn deliver(&mut self, batches: Batches) {
        for (node, batch) in batches {
            if !self.unreachable.contains(&node) {
                self.nodes.get_mut(&node).expect("is there").step(&batch.bytes).expect("is good");
            }
        }
    }

    fn take(&mut self, node: u32, turn: Turn) -> bool {
        let idle = turn.batches.is_empty() && turn.token == 0 && turn.committed.is_empty();
        let of_node = self.committed.entry(node).or_default();
        of_node
            .extend(turn.committed.iter().filter(|(_, _, item)| item.kind == DATA).map(|(_, _, item)| item.body[0]));
        self.reads.extend(turn.reads.iter().map(|(_, context, index)| (node, *context, *index)));
        self.wanted.extend(turn.wanted.iter().map(|(_, peer)| (node, *peer)));
        for write in &turn.writes {
            self.snapshots.extend(write.snapshot.iter().map(|one| (node, one.0)));
        }
        let waited = self.nodes.get_mut(&node).expect("is there").stored(turn.token).expect("in order");
        for to in turn.batches.keys().chain(waited.keys()) {
            *self.sent.entry((node, *to)).or_default() += 1;
        }
        if !self.unreachable.contains(&node) {
            self.deliver(turn.batches);
            self.deliver(waited);
        }
        idle
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            let mut idle = true;
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                let turn = self.nodes.get_mut(&node).expect("is there").ready();
                idle &= self.take(node, turn);
            }
            if idle {
                return;
            }
        }
        panic!("never settles");
    }

    fn tick(&mut self, count: usize) {
        for _ in 0..count {
            for groups in self.nodes.values_mut() {
                groups.tick();
            }
            self.settle();
        }
    }

    fn of(&mut self, node: u32) -> &mut Groups {
        self.nodes.get_mut(&node).expect("is there")
    }

    fn leader(&self) -> Option<u32> {
        let leads = |groups: &Groups| groups.group(GROUP).is_ok_and(|group| group.is_leader());
        self.nodes
            .iter()
            .filter(|(node, groups)| !self.unreachable.contains(node) && leads(groups))
            .map(|(node, _)| *node)
            .last()
    }

    fn elect(&mut self, node: u32) {
        self.of(node).campaign(GROUP).expect("is good");
        self.settle();
        assert_eq!(self.leader(), Some(node));
    }

    fn propose(&mut self, node: u32, what: u8) -> Option<(u64, u64)> {
        let mut descriptor = [0; DESCRIPTOR_SIZE];
        descriptor[0] = what;
        let done = self.of(node).propose(GROUP, descriptor);
        self.settle();
        done
    }

    fn asleep(&self) -> Vec<u32> {
        let sleeps = |groups: &Groups| groups.group(GROUP).is_ok_and(|group| group.asleep);
        self.nodes.iter().filter(|(_, groups)| sleeps(groups)).map(|(node, _)| *node).collect()
    }
}

#[test]
fn a_leader_is_elected_by_time_alone() {
    for count in [1, 3, 5] {
        let mut cluster = Cluster::new(count);
        cluster.tick(41);
        assert!(cluster.leader().is_some(), "{count} peers");
    }
}

#[test]
fn a_proposal_is_committed_everywhere() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);

    assert_eq!(cluster.propose(1, 7), Some((3, 2)));
    assert_eq!(cluster.propose(2, 8), None);

    cluster.tick(5);
    assert!(cluster.committed.values().all(|all| all == &[7]), "{:?}", cluster.committed);
}

#[test]
fn a_lost_leader_is_followed_at_once() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.unreachable.push(1);

    cluster.of(2).node_silent(1).expect("is good");
    cluster.of(3).node_silent(1).expect("is good");
    cluster.settle();
    cluster.tick(13);

    let next = cluster.leader().expect("there is one");
    assert_ne!(next, 1);
    assert!(cluster.propose(next, 9).is_some());
    assert_eq!(cluster.committed[&next], [9]);
}

#[test]
fn the_lead_is_handed_over() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);

    cluster.of(1).transfer(GROUP, peer(2)).expect("is good");
    cluster.settle();

    assert_eq!(cluster.leader(), Some(2));
    let refused = cluster.of(1).transfer(GROUP, peer(3));
    assert_eq!(refused, Err(Failure::Refused("group 5: peer 4294967297 does not lead".to_owned())));
}

#[test]
fn a_read_gets_its_index_on_leader_and_follower() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.propose(1, 7);

    let here = cluster.of(1).read_index(GROUP).expect("is good");
    let there = cluster.of(2).read_index(GROUP).expect("is good");
    cluster.settle();

    assert_ne!(here, 0);
    assert!(cluster.reads.contains(&(1, here, 3)), "{:?}", cluster.reads);
    assert!(cluster.reads.contains(&(2, there, 3)), "{:?}", cluster.reads);
}

#[test]
fn a_group_sleeps_when_it_is_settled_and_wakes_for_work() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.propose(1, 7);

    cluster.tick(30);
    assert_eq!(cluster.asleep(), [1, 2, 3]);
    cluster.tick(1_000);
    assert_eq!(cluster.leader(), Some(1));
    assert_eq!(cluster.asleep(), [1, 2, 3]);

    cluster.propose(1, 8);
    assert_eq!(cluster.asleep(), []);
    cluster.tick(30);
    assert_eq!(cluster.asleep(), [1, 2, 3]);
    assert_eq!(cluster.committed[&3], [7, 8]);
}

#[test]
fn a_group_without_one_node_sleeps_and_catches_it_up_later() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.unreachable.push(3);
    for node in [1, 2] {
        cluster.of(node).node_silent(3).expect("is good");
    }
    cluster.propose(1, 7);
    cluster.tick(40);
    assert!(!cluster.of(1).group(GROUP).is_ok_and(|group| !group.asleep));

    cluster.unreachable.clear();
    for node in [1, 2] {
        cluster.of(node).node_heard(3);
    }
    cluster.settle();
    cluster.tick(30);

    assert_eq!(cluster.committed[&3], [7]);
    assert_eq!(cluster.asleep(), [1, 2, 3]);
}

#[test]
fn a_group_sleeps_again_after_a_short_silence_of_a_node_without_new_entries() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.tick(2);

    for node in [1, 2] {
        cluster.of(node).node_silent(3).expect("is good");
        cluster.of(node).node_heard(3);
    }
    cluster.settle();
    cluster.tick(40);

    assert_eq!(cluster.asleep(), [1, 2, 3]);
}

#[test]
fn followers_of_a_leader_that_was_closed_in_its_sleep_elect_when_they_are_asked() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.tick(30);
    assert_eq!(cluster.asleep(), [1, 2, 3]);
    cluster.of(1).close(GROUP).expect("is open");

    assert_eq!(cluster.propose(2, 7), None);
    cluster.tick(60);

    let next = cluster.leader().expect("there is one");
    assert!(cluster.propose(next, 8).is_some());
    assert_eq!(cluster.committed[&next], [8]);
}

#[test]
fn followers_of_a_leader_that_was_closed_in_its_sleep_elect_after_a_time() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.tick(30);
    cluster.of(1).close(GROUP).expect("is open");

    cluster.tick(4 * 300 + 60);

    assert!(cluster.leader().is_some());
}

#[test]
fn the_heartbeats_of_a_sleeping_leader_get_no_answers_and_keep_its_followers_asleep() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.tick(30);
    cluster.sent.clear();

    cluster.tick(10 * 300);

    assert_eq!(cluster.sent.keys().collect::<Vec<_>>(), [&(1, 2), &(1, 3)]);
    assert_eq!(cluster.sent[&(1, 2)], 10);
    assert_eq!(cluster.asleep(), [1, 2, 3]);
}

#[test]
fn a_leader_whose_peers_sleep_already_falls_asleep_though_an_answer_was_lost() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.unreachable.push(1); // the answers to the first requests for sleep
    for _ in 0..17 {
        cluster.of(1).tick();
    }
    let turn = cluster.of(1).ready();
    cluster.deliver(turn.batches);
    cluster.settle();
    assert_eq!(cluster.asleep(), [2, 3]);
    for node in [2, 3] {
        for _ in 0..310 {
            cluster.of(node).tick(); // so that the next heartbeat follows a call of `watch`
        }
    }

    cluster.unreachable.clear();
    cluster.tick(15);

    assert_eq!(cluster.asleep(), [1, 2, 3]);
}

#[test]
fn the_heartbeats_of_many_sleeping_groups_share_few_batches() {
    let mut cluster = Cluster::new(3);
    for group in 6..306 {
        for node in 1..=3 {
            cluster.of(node).open(group, "more", birth(node, &[1, 2, 3])).expect("is good");
        }
        cluster.of(1).campaign(group).expect("is good");
    }
    cluster.elect(1);
    cluster.tick(60);
    assert!(cluster.nodes.values().all(|groups| groups.counts() == (301, 0)));
    cluster.sent.clear();

    cluster.tick(300);

    assert_eq!(cluster.sent[&(1, 2)], 12);
}

#[test]
fn a_late_request_for_sleep_of_a_leader_that_is_gone_is_refused() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    let mut message = raft::eraftpb::Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgHeartbeat);
    (message.from, message.to, message.term, message.commit) = (peer(1), peer(2), 2, 2);
    let mut late = Vec::new();
    crate::frame::encode(&mut late, GROUP, &message, crate::frame::SLEEP).expect("can be sent");
    cluster.unreachable.push(1);

    cluster.of(2).node_silent(1).expect("is good");
    cluster.of(2).step(&late).expect("is good");

    assert_eq!(cluster.asleep(), []);
}

/// Returns three peers, the third of which has received a snapshot and has not installed it yet.
fn installing_cluster() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.unreachable.push(3);
    for what in 0..3 {
        cluster.propose(1, what);
    }
    cluster.of(1).compact(GROUP, 5).expect("is applied");
    cluster.of(1).offer(GROUP, 5, [7; DESCRIPTOR_SIZE]).expect("is applied");
    cluster.unreachable.clear();
    cluster.tick(12);
    assert_eq!(cluster.snapshots, [(3, 5)]);
    cluster
}

#[test]
fn a_peer_that_installs_a_snapshot_votes_when_its_leader_is_known_to_be_gone() {
    let mut cluster = installing_cluster();
    cluster.unreachable.push(1);

    cluster.of(2).node_silent(1).expect("is good");
    cluster.of(3).node_silent(1).expect("is good");
    cluster.settle();
    cluster.tick(13);

    assert_eq!(cluster.leader(), Some(2));
}

#[test]
fn a_peer_that_installs_a_snapshot_votes_when_it_has_heard_nothing_for_long() {
    let mut cluster = installing_cluster();
    cluster.unreachable.push(1);

    cluster.tick(100);

    assert_eq!(cluster.leader(), Some(2));
}

#[test]
fn a_question_of_the_leader_from_before_it_led_does_not_come_back_to_it() {
    let mut cluster = Cluster::new(3);
    cluster.elect(2);
    let mut message = raft::eraftpb::Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgReadIndex);
    (message.from, message.to) = (peer(2), peer(3));
    let mut entry = raft::eraftpb::Entry::default();
    entry.data = crate::frame::context_of_read(peer(2), 9).into();
    message.entries.push(entry);
    let mut question = Vec::new();
    crate::frame::encode(&mut question, GROUP, &message, 0).expect("can be sent");

    cluster.of(3).step(&question).expect("is good");
    assert!(cluster.of(3).ready().batches.is_empty());

    assert!(cluster.of(3).quarantined().is_empty());
}

#[test]
fn a_membership_that_no_frame_can_hold_is_refused() {
    let mut groups = Groups::new(1, 1, 1, TIMING).expect("is good");
    let mut birth = birth(1, &[1]);
    birth.conf.learners = (2..=255).map(peer).collect();
    groups.open(GROUP, "orders", birth).expect("is good");
    groups.campaign(GROUP).expect("is good");
    for _ in 0..2 {
        let token = groups.ready().token;
        groups.stored(token).expect("in order");
    }

    let refused = groups.change(GROUP, &[(ADD_LEARNER, peer(256))]);

    let text = "group 5: a configuration of 256 peers, 255 is the limit";
    assert_eq!(refused, Err(Failure::Refused(text.to_owned())));
}

#[test]
fn a_peer_joins_by_a_snapshot_and_becomes_a_voter() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.propose(1, 7);
    cluster.start(4, birth(4, &[]));

    cluster.of(1).change(GROUP, &[(ADD_LEARNER, peer(4))]).expect("is good");
    cluster.settle();
    cluster.tick(6);
    assert!(cluster.wanted.contains(&(1, peer(4))), "{:?}", cluster.wanted);
    cluster.of(1).offer(GROUP, 4, [1; DESCRIPTOR_SIZE]).expect("is good");
    cluster.tick(6);
    assert_eq!(cluster.snapshots, [(4, 4)]);
    let answer = cluster.of(4).installed(GROUP, 4).expect("is there");
    cluster.deliver(answer);
    cluster.of(1).report_snapshot(GROUP, peer(4), true).expect("is good");
    cluster.settle();
    cluster.of(1).change(GROUP, &[(ADD_VOTER, peer(4)), (REMOVE, peer(3))]).expect("is good");
    cluster.settle();
    cluster.tick(6);
    cluster.propose(1, 8);

    assert_eq!(cluster.committed[&4], [8]);
    let conf = cluster.of(4).group(GROUP).expect("is open").log().conf().clone();
    let mut voters = conf.voters.to_vec();
    voters.sort_unstable();
    assert_eq!((voters, conf.voters_outgoing.to_vec()), (vec![peer(1), peer(2), peer(4)], vec![]));
}

#[test]
fn a_leader_is_not_removed_and_one_change_waits_for_the_other() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);

    let refused = cluster.of(1).change(GROUP, &[(REMOVE, peer(1))]).expect_err("it leads");
    assert_eq!(
        refused,
        Failure::Refused("group 5: peer 4294967297 leads: it is removed after a transfer of the lead".to_owned())
    );
    cluster.of(1).change(GROUP, &[(REMOVE, peer(3))]).expect("is good");
    let refused = cluster.of(1).change(GROUP, &[(REMOVE, peer(2))]).expect_err("one is under way");
    assert_eq!(refused, Failure::Refused("group 5: another change of the membership is under way".to_owned()));
}

#[test]
fn a_panic_stays_in_its_group() {
    let mut groups = Groups::new(2, 1, 1, TIMING).expect("is good");
    groups.open(5, "orders", birth(2, &[1, 2, 3])).expect("is good");
    groups.open(6, "bills", birth(2, &[2])).expect("is good");
    let mut message = raft::eraftpb::Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgHeartbeat);
    // The message commits an entry that this peer has lost, so the engine panics.
    (message.from, message.to, message.term, message.commit) = (peer(1), peer(2), 4, 900);
    let mut bytes = Vec::new();
    crate::frame::encode(&mut bytes, 5, &message, 0).expect("can be sent");

    groups.step(&bytes).expect("is good");

    let text = &groups.quarantined()[&5];
    assert!(text.starts_with("group 5 (orders): to_commit 900 is out of range"), "{text}");
    assert!(matches!(groups.change(5, &[(REMOVE, peer(1))]), Err(Failure::Quarantined(_))));
    groups.step(&bytes).expect("later frames are dropped");
    groups.campaign(6).expect("is not touched");
    let turn = groups.ready();
    groups.stored(turn.token).expect("in order");
    assert!(groups.group(6).expect("is open").is_leader());
    groups.close(5).expect("is known");
    groups.open(5, "orders", birth(2, &[1, 2, 3])).expect("may come back");
}

#[test]
fn a_restart_takes_the_commit_index_back_to_the_last_entry() {
    let mut groups = Groups::new(2, 1, 1, TIMING).expect("is good");
    let mut birth = birth(2, &[1, 2, 3]);
    (birth.hard.term, birth.hard.commit) = (3, 90);
    birth.items = vec![Item { term: 3, kind: DATA, body: [4; DESCRIPTOR_SIZE] }];

    groups.open(5, "orders", birth).expect("is good");

    let turn = groups.ready();
    assert_eq!(turn.committed.len(), 1);
    assert_eq!(groups.group(5).expect("is open").raft().raft_log.committed, 2);
}

#[test]
fn what_cannot_be_durable_is_refused_at_the_opening() {
    let mut groups = Groups::new(2, 1, 1, TIMING).expect("is good");
    let mut old_vote = birth(2, &[1, 2, 3]);
    old_vote.items = vec![Item { term: 3, kind: DATA, body: [4; DESCRIPTOR_SIZE] }];
    let elsewhere = birth(1, &[1, 2, 3]);

    assert_eq!(groups.open(5, "orders", old_vote), Err("the log has term 3, the vote is of term 1".to_owned()));
    assert_eq!(groups.open(5, "orders", elsewhere), Err("peer 4294967297 is of node 1, this is node 2".to_owned()));
    let mut huge = birth(2, &[2]);
    huge.hard.term = 1 << 62;
    let mut nobody = birth(2, &[2]);
    nobody.hard.vote = 7;

    assert_eq!(groups.open(0, "", birth(2, &[2])), Err("group 0".to_owned()));
    let limit = "term 4611686018427387904, 4611686018427387904 is the limit";
    assert_eq!(groups.open(5, "orders", huge), Err(limit.to_owned()));
    assert_eq!(groups.open(5, "orders", nobody), Err("vote 7 is not a peer".to_owned()));
}

#[test]
fn tokens_are_reported_in_their_order() {
    let mut groups = Groups::new(1, 1, 1, TIMING).expect("is good");
    groups.open(5, "orders", birth(1, &[1])).expect("is good");
    assert_eq!(groups.stored(1).err(), Some("token 1 is stored, none is waited for".to_owned()));
    groups.campaign(5).expect("is good");

    let token = groups.ready().token;

    assert_eq!(groups.stored(token + 1).err(), Some("token 2 is stored, token 1 comes first".to_owned()));
    groups.stored(token).expect("in order");
}

/// The engine adds entries to a waiting message that has none and whose index is lower than that of the entries.
#[test]
fn entries_for_a_peer_that_has_gone_back_in_the_same_turn_begin_where_they_belong() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1);
    cluster.unreachable.push(2);
    cluster.propose(1, 7);
    cluster.of(1).propose(GROUP, [8; DESCRIPTOR_SIZE]).expect("it leads");
    let turn = cluster.of(1).ready();
    cluster.of(3).step(&turn.batches[&3].bytes).expect("is good");
    cluster.of(1).stored(turn.token).expect("in order");
    let turn = cluster.of(3).ready();
    let answer = cluster.of(3).stored(turn.token).expect("in order");
    let mut rejection = raft::eraftpb::Message::default();
    rejection.set_msg_type(raft::eraftpb::MessageType::MsgAppendResponse);
    (rejection.from, rejection.to, rejection.term, rejection.index) = (peer(2), peer(1), 2, 3);
    (rejection.reject, rejection.reject_hint, rejection.log_term) = (true, 2, 2);
    let mut bytes = answer[&1].bytes.clone();
    crate::frame::encode(&mut bytes, GROUP, &rejection, 0).expect("can be sent");

    cluster.of(1).step(&bytes).expect("is good");
    cluster.unreachable.clear();
    cluster.settle();

    assert!(cluster.of(1).quarantined().is_empty(), "{:?}", cluster.of(1).quarantined());
    assert_eq!(cluster.committed[&2], [7, 8]);
}
