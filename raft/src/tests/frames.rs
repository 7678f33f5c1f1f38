//! The format: frames that were written can be read, and damaged frames are refused with the name of the field.

use raft::eraftpb::{ConfState, Entry, Message, MessageType, Snapshot};
use xxhash_rust::xxh64::xxh64;

use crate::entry::*;
use crate::frame::*;

const A: u64 = 1 << 32 | 1;
const B: u64 = 2 << 32 | 1;

fn message(kind: MessageType) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (A, B, 7);
    message
}

fn append(count: usize) -> Message {
    let mut message = message(MessageType::MsgAppend);
    (message.index, message.log_term, message.commit) = (10, 6, 9);
    for at in 0..count {
        let item = Item { term: 7, kind: DATA, body: [at as u8; DESCRIPTOR_SIZE] };
        message.entries.push(entry_of_item(&item, 11 + at as u64));
    }
    message
}

fn snapshot() -> Message {
    let mut message = message(MessageType::MsgSnapshot);
    let mut snapshot = Snapshot::default();
    snapshot.data = vec![5; DESCRIPTOR_SIZE].into();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (20, 6);
    let mut conf = ConfState::default();
    conf.voters = vec![A, B];
    conf.voters_outgoing = vec![A];
    conf.learners = vec![3 << 32];
    conf.auto_leave = true;
    meta.set_conf_state(conf);
    message.set_snapshot(snapshot);
    message
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, 3, message, 0).expect("can be sent");
    out
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = xxh64(&bytes[8..], 0) as u32;
    bytes[4..8].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn changed(message: &Message, at: usize, with: &[u8]) -> String {
    let mut bytes = bytes_of(message);
    bytes[at..at + with.len()].copy_from_slice(with);
    decode_all(&with_checksum(bytes)).expect_err("is damaged")
}

fn all_kinds() -> Vec<Message> {
    let mut read = message(MessageType::MsgReadIndex);
    read.term = 0;
    let mut entry = Entry::default();
    entry.data = context_of_read(A, 99).into();
    read.entries.push(entry.clone());
    let mut answer = message(MessageType::MsgReadIndexResp);
    answer.index = 12;
    answer.entries.push(entry);
    let mut heartbeat = message(MessageType::MsgHeartbeat);
    heartbeat.context = context_of_read(B, 1).into();
    let mut rejected = message(MessageType::MsgAppendResponse);
    (rejected.reject, rejected.reject_hint, rejected.log_term) = (true, 4, 3);
    let mut vote = message(MessageType::MsgRequestVote);
    (vote.index, vote.log_term) = (4, 4);
    vote.context = b"CampaignTransfer"[..].into();
    let mut all = vec![append(0), append(3), snapshot(), read, answer, heartbeat, rejected, vote];
    for kind in [
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTimeoutNow,
    ] {
        all.push(message(kind));
    }
    all
}

#[test]
fn every_kind_is_read_as_it_was_written() {
    for message in all_kinds() {
        let frames = decode_all(&bytes_of(&message)).expect("is good");

        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].group, &frames[0].message), (3, &message));
    }
}

#[test]
fn changes_of_the_membership_never_travel_as_protobuf() {
    let body = body_of_changes(&[(ADD_VOTER, B), (REMOVE, A)]).expect("is good");
    let entry = entry_of_item(&Item { term: 7, kind: CHANGE, body }, 11);
    let mut message = append(0);
    message.entries.push(entry);

    let bytes = bytes_of(&message);

    assert_eq!(&bytes[HEADER_SIZE + 16..HEADER_SIZE + 18], &[2, ADD_VOTER]);
    assert_eq!(decode_all(&bytes).expect("is good")[0].message, message);
}

#[test]
fn a_long_message_is_split_into_frames_that_follow_each_other() {
    let frames = decode_all(&bytes_of(&append(ENTRIES_MAX + 2))).expect("is good");

    assert_eq!(frames.len(), 2);
    let second = &frames[1].message;
    assert_eq!((second.index, second.log_term, second.entries.len()), (10 + ENTRIES_MAX as u64, 7, 2));
    assert_eq!(second.entries[0].index, 11 + ENTRIES_MAX as u64);
}

#[test]
fn a_message_for_this_node_alone_is_not_written() {
    let error = encode(&mut Vec::new(), 3, &message(MessageType::MsgPropose), 0);

    assert_eq!(error.expect_err("is local"), "a message of type MsgPropose never leaves its node");
}

/// If one group of a batch fails, the frames of the other groups must not follow a partial frame.
#[test]
fn a_message_that_no_node_would_take_leaves_the_batch_as_it_was() {
    let mut no_descriptor = snapshot();
    no_descriptor.mut_snapshot().data = vec![5; 3].into();
    let mut own = message(MessageType::MsgHeartbeat);
    own.to = A;
    let mut huge = message(MessageType::MsgHeartbeat);
    huge.term = NUMBER_MAX;
    let mut last_is_bad = append(ENTRIES_MAX + 2);
    last_is_bad.entries.last_mut().expect("has entries").data = vec![5; 3].into();
    let cases = [
        (no_descriptor, "a snapshot with a descriptor of 3 bytes"),
        (own, "from and to are both 4294967297"),
        (huge, "a number 4611686018427387904, 4611686018427387904 is the limit"),
        (last_is_bad, "an entry of type EntryNormal with 3 bytes"),
    ];
    let good = bytes_of(&append(1));
    for (message, text) in cases {
        let mut batch = good.clone();

        assert_eq!(encode(&mut batch, 3, &message, 0), Err(text.to_owned()));

        assert!(batch == good, "{text}");
    }
}

#[test]
fn only_an_append_without_entries_needs_no_answer() {
    let flags = |message: &Message| {
        let mut out = Vec::new();
        encode(&mut out, 3, message, QUIET | SLEEP).expect("can be sent");
        decode_all(&out).expect("is good")[0].flags
    };

    assert_eq!(flags(&append(0)), QUIET);
    assert_eq!(flags(&message(MessageType::MsgHeartbeat)), SLEEP);
    assert_eq!(flags(&message(MessageType::MsgAppendResponse)), 0);
    let text = changed(&append(1), 10, &[QUIET]);
    assert_eq!(text, "frame at byte 0: append: flags 0x10, 1 entries need an answer");
}

#[test]
fn every_flipped_bit_is_refused() {
    for message in all_kinds() {
        let good = bytes_of(&message);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_all(&bytes).is_err(), "bit {bit} of {message:?}");
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let good = bytes_of(&append(3));
    for size in 1..good.len() {
        assert!(decode_all(&good[..size]).is_err(), "{size} bytes");
    }
}

#[test]
fn the_error_names_what_is_wrong() {
    let append = append(2);
    let first = HEADER_SIZE;
    let snap = snapshot();
    let huge = (1u64 << 62).to_le_bytes();
    let cases: [(&Message, usize, &[u8], &str); 24] = [
        (&append, 8, &[9], "version 9, this node knows 1"),
        (&append, 9, &[77], "kind 77 is not known"),
        (&append, 9, &[0], "kind 0 is not known"),
        (&append, 10, &[REJECT], "append: flags 0x01, it knows 0x10"),
        (&append, 11, &[1], "append: byte 11 is 1, it is 0"),
        (&append, 12, &[3], "append: 3 entries in 112 bytes, they have 168"),
        (&append, 13, &[2], "append: 514 entries, 256 is the limit"),
        (&append, 16, &[0], "append: group 0"),
        (&append, 24, &[0; 8], "append: from 0 is not a peer"),
        (&append, 36, &[0], "append: to 1 is not a peer"),
        (&append, 24, &B.to_le_bytes(), "append: from and to are both 8589934593"),
        (&append, 40, &[0], "append: term 0"),
        (&append, 48, &huge, "append: index 4611686018427387904, 4611686018427387904 is the limit"),
        (&append, 56, &[8], "append: log_term 8 after term 7"),
        (&append, 56, &[0], "append: index 10 with log_term 0"),
        (&append, 72, &[1], "append: commit_term 1, it has none"),
        (&append, 88, &[1], "append: reader 1 and context 0 without their flag"),
        (&append, first, &[5], "append: entry 0: term 5, it lies between 6 and 7"),
        (&append, first + 8, &[3], "append: entry 0: kind 3 of an entry is not known"),
        (&append, first + 8, &[0], "append: entry 1: an empty entry with a body"),
        (&append, first + 9, &[1], "append: entry 0: bytes 9 to 15 are not 0"),
        (&snap, first + 40, &[1], "snapshot: lists of [1, 1, 1, 0] peers, 4 in all"),
        (&snap, first + 44, &[2], "snapshot: flags of the configuration are [2, 0, 0, 0]"),
        (&snap, first + 48, &B.to_le_bytes(), "snapshot: voters name 8589934593 twice"),
    ];
    for (message, at, with, text) in cases {
        let at = if text.contains("entry 1: an empty") { at + ENTRY_SIZE } else { at };
        assert_eq!(changed(message, at, with), format!("frame at byte 0: {text}"));
    }
}

#[test]
fn a_frame_after_good_ones_is_named_by_its_place() {
    let mut bytes = bytes_of(&append(0));
    bytes.extend([0; 10]);

    assert_eq!(decode_all(&bytes).expect_err("is cut"), "frame at byte 104: 10 bytes, a header has 104");
}

#[test]
fn damaged_changes_are_refused() {
    let change = |body: [u8; DESCRIPTOR_SIZE]| check_item(&Item { term: 1, kind: CHANGE, body });
    let mut body = body_of_changes(&[(ADD_VOTER, B)]).expect("is good");
    body[1] = 4;
    assert_eq!(change(body), Err("change 4 is not known".to_owned()));
    body[..2].copy_from_slice(&[5, 1]);
    assert_eq!(change(body), Err("5 changes, 4 is the limit".to_owned()));
    body[0] = 0;
    assert_eq!(change(body), Err("bytes after the changes".to_owned()));
}

/// Frames with up to four damaged fields and a valid checksum are refused or usable for the engine, and never cause a
/// panic.
#[test]
fn a_hundred_thousand_damaged_frames_do_not_panic() {
    let kinds = all_kinds();
    let mut chance = 88_172_645_463_325_252_u64;
    let mut next = move || {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance
    };
    let mut good = 0;
    for _ in 0..100_000 {
        let mut bytes = bytes_of(&kinds[(next() % kinds.len() as u64) as usize]);
        for _ in 0..next() % 4 {
            let at = 8 + (next() % (bytes.len() as u64 - 8)) as usize;
            bytes[at] = if next() % 2 == 0 { next() as u8 } else { bytes[at] ^ 1 << (next() % 8) };
        }
        if next() % 8 == 0 {
            bytes.truncate((next() % bytes.len() as u64) as usize);
            let size = bytes.len() as u32;
            if bytes.len() >= 8 {
                bytes[..4].copy_from_slice(&size.to_le_bytes());
            }
        }
        if bytes.len() >= 8 {
            bytes = with_checksum(bytes);
        }
        good += u32::from(decode_all(&bytes).is_ok());
    }
    assert!((20_000..80_000).contains(&good), "{good} were good");
}
