//! Entries: their stored and sent form, and the membership changes in them.
//!
//! An entry has 56 bytes: term, kind, and a body of 40 bytes, which is a descriptor or up to four changes. Changes
//! are converted to the engine's own form, which is protobuf, only after they have been checked.

use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType};

use crate::frame::{number, peer, NUMBER_MAX};

pub const ENTRY_SIZE: usize = 56;
pub const DESCRIPTOR_SIZE: usize = 40;
/// Maximum number of changes in one membership entry.
pub const CHANGES_MAX: usize = 4;

pub const EMPTY: u8 = 0;
pub const DATA: u8 = 1;
pub const CHANGE: u8 = 2;

/// An entry as it is stored and sent; its index follows from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub term: u64,
    pub kind: u8,
    pub body: [u8; DESCRIPTOR_SIZE],
}

/// Appends an entry to a frame.
pub fn put_item(out: &mut Vec<u8>, item: &Item) {
    out.extend_from_slice(&item.term.to_le_bytes());
    out.extend_from_slice(&[item.kind, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&item.body);
}

/// Reads an entry and checks it by itself.
pub fn read_item(bytes: &[u8]) -> Result<Item, String> {
    let mut body = [0; DESCRIPTOR_SIZE];
    body.copy_from_slice(&bytes[16..ENTRY_SIZE]);
    if bytes[9..16] != [0; 7] {
        return Err("bytes 9 to 15 are not 0".to_owned());
    }
    let item = Item { term: number(bytes, 0), kind: bytes[8], body };
    check_item(&item)?;
    Ok(item)
}

/// Checks one entry: that its kind is known, and that its body is valid for this kind.
pub fn check_item(item: &Item) -> Result<(), String> {
    if item.term == 0 || item.term >= NUMBER_MAX {
        return Err(format!("term {}", item.term));
    }
    match item.kind {
        EMPTY if item.body != [0; DESCRIPTOR_SIZE] => Err("an empty entry with a body".to_owned()),
        EMPTY | DATA => Ok(()),
        CHANGE => check_changes(&item.body),
        other => Err(format!("kind {other} of an entry is not known")),
    }
}

// The body of a change: count u8, then `count` times (op u8, peer u64); the rest is 0.
const CHANGE_SIZE: usize = 9;
pub const ADD_VOTER: u8 = 1;
pub const ADD_LEARNER: u8 = 2;
pub const REMOVE: u8 = 3;

fn check_changes(body: &[u8; DESCRIPTOR_SIZE]) -> Result<(), String> {
    let count = usize::from(body[0]);
    if count > CHANGES_MAX {
        return Err(format!("{count} changes, {CHANGES_MAX} is the limit"));
    }
    let (used, rest) = body[1..].split_at(count * CHANGE_SIZE);
    for change in used.chunks_exact(CHANGE_SIZE) {
        if !(ADD_VOTER..=REMOVE).contains(&change[0]) {
            return Err(format!("change {} is not known", change[0]));
        }
        peer(number(change, 1), "change of peer")?;
    }
    if rest.iter().any(|byte| *byte != 0) {
        return Err("bytes after the changes".to_owned());
    }
    Ok(())
}

/// Returns the body of an entry that changes the membership.
pub fn body_of_changes(changes: &[(u8, u64)]) -> Result<[u8; DESCRIPTOR_SIZE], String> {
    if changes.len() > CHANGES_MAX {
        return Err(format!("{} changes, {CHANGES_MAX} is the limit", changes.len()));
    }
    let mut body = [0; DESCRIPTOR_SIZE];
    body[0] = changes.len() as u8;
    for ((op, peer), place) in changes.iter().zip(body[1..].chunks_exact_mut(CHANGE_SIZE)) {
        place[0] = *op;
        place[1..].copy_from_slice(&peer.to_le_bytes());
    }
    check_changes(&body)?;
    Ok(body)
}

/// Returns the engine's form of a checked body.
pub fn conf_change_of(body: &[u8; DESCRIPTOR_SIZE]) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    change.set_transition(ConfChangeTransition::Auto);
    for part in body[1..].chunks_exact(CHANGE_SIZE).take(usize::from(body[0])) {
        let mut single = ConfChangeSingle::default();
        single.node_id = number(part, 1);
        single.set_change_type(match part[0] {
            ADD_VOTER => ConfChangeType::AddNode,
            ADD_LEARNER => ConfChangeType::AddLearnerNode,
            _ => ConfChangeType::RemoveNode,
        });
        change.changes.push(single);
    }
    change
}

fn body_of_conf_change(change: &ConfChangeV2) -> Result<[u8; DESCRIPTOR_SIZE], String> {
    let changes: Vec<_> = change
        .changes
        .iter()
        .map(|single| {
            let op = match single.get_change_type() {
                ConfChangeType::AddNode => ADD_VOTER,
                ConfChangeType::AddLearnerNode => ADD_LEARNER,
                ConfChangeType::RemoveNode => REMOVE,
            };
            (op, single.node_id)
        })
        .collect();
    body_of_changes(&changes)
}

/// Returns the compact form of an entry of this node's engine.
pub fn item_of_entry(entry: &Entry) -> Result<Item, String> {
    let mut item = Item { term: entry.term, kind: EMPTY, body: [0; DESCRIPTOR_SIZE] };
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => {}
        EntryType::EntryNormal if entry.data.len() == DESCRIPTOR_SIZE => {
            item.kind = DATA;
            item.body.copy_from_slice(&entry.data);
        }
        EntryType::EntryConfChangeV2 => {
            let mut change = ConfChangeV2::default();
            change.merge_from_bytes(&entry.data).map_err(|error| error.to_string())?;
            item.kind = CHANGE;
            item.body = body_of_conf_change(&change)?;
        }
        kind => return Err(format!("an entry of type {kind:?} with {} bytes", entry.data.len())),
    }
    Ok(item)
}

/// Returns the engine's form of a checked entry.
pub fn entry_of_item(item: &Item, index: u64) -> Entry {
    let mut entry = Entry::default();
    entry.index = index;
    entry.term = item.term;
    match item.kind {
        DATA => entry.data = item.body.to_vec().into(),
        CHANGE => {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            // Serializing to memory can fail only if memory is exhausted.
            entry.data = conf_change_of(&item.body).write_to_bytes().unwrap_or_default().into();
        }
        _ => {}
    }
    entry
}
