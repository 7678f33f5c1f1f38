//! Frames: messages of the engine as they travel between nodes.
//!
//! Knows nothing of groups or sockets. `docs/raft-frames.md` describes the format. This module writes frames and
//! checks every field of those that it reads, so that the engine never gets a number that it cannot handle. An
//! invalid frame is refused as a whole, with an error that names the first invalid field.

use raft::eraftpb::{ConfState, Entry, Message, MessageType, Snapshot};
use xxhash_rust::xxh64::xxh64;

use crate::entry::{entry_of_item, item_of_entry, put_item, read_item, Item, DESCRIPTOR_SIZE, ENTRY_SIZE};

pub const VERSION: u8 = 1;
pub const HEADER_SIZE: usize = 104;
/// Maximum number of entries in one frame; longer messages are split.
pub const ENTRIES_MAX: usize = 256;
/// Maximum number of peers in a membership, in all its lists together.
pub const PEERS_MAX: usize = 255;
/// Terms and indexes are below this number, so that adding a count never overflows.
pub const NUMBER_MAX: u64 = 1 << 62;
pub const FRAME_MAX: usize = HEADER_SIZE + ENTRIES_MAX * ENTRY_SIZE;

pub const REJECT: u8 = 1;
pub const CONTEXT: u8 = 2;
pub const TRANSFER: u8 = 4;
pub const SLEEP: u8 = 8;
pub const QUIET: u8 = 16;

/// Marks a vote request of a leadership transfer; this is the engine's own text.
const CAMPAIGN_TRANSFER: &[u8] = b"CampaignTransfer";

/// A frame that was read and checked.
#[derive(Debug)]
pub struct Frame {
    pub group: u64,
    pub flags: u8,
    pub message: Message,
}

// The optional fields that a kind uses; the others must be 0.
const TERM: u16 = 1;
const INDEX: u16 = 2;
const LOG_TERM: u16 = 4;
const COMMIT: u16 = 8;
const COMMIT_TERM: u16 = 16;
const HINT: u16 = 32;
const READ: u16 = 64; // reader and context

struct Kind {
    code: u8,
    name: &'static str,
    message: MessageType,
    fields: u16,
    flags: u8,
}

const fn kind(code: u8, name: &'static str, message: MessageType, fields: u16, flags: u8) -> Kind {
    Kind { code, name, message, fields, flags }
}

const KINDS: [Kind; 12] = [
    kind(1, "append", MessageType::MsgAppend, TERM | INDEX | LOG_TERM | COMMIT, QUIET),
    kind(2, "append response", MessageType::MsgAppendResponse, TERM | INDEX | LOG_TERM | COMMIT | HINT, REJECT),
    kind(3, "vote request", MessageType::MsgRequestVote, TERM | INDEX | LOG_TERM | COMMIT | COMMIT_TERM, TRANSFER),
    kind(4, "vote response", MessageType::MsgRequestVoteResponse, TERM | COMMIT | COMMIT_TERM, REJECT),
    kind(5, "pre-vote request", MessageType::MsgRequestPreVote, TERM | INDEX | LOG_TERM | COMMIT | COMMIT_TERM, 0),
    kind(6, "pre-vote response", MessageType::MsgRequestPreVoteResponse, TERM | COMMIT | COMMIT_TERM, REJECT),
    kind(7, "heartbeat", MessageType::MsgHeartbeat, TERM | COMMIT | READ, CONTEXT | SLEEP),
    kind(8, "heartbeat response", MessageType::MsgHeartbeatResponse, TERM | COMMIT | READ, CONTEXT | SLEEP),
    kind(9, "snapshot", MessageType::MsgSnapshot, TERM | INDEX | LOG_TERM, 0),
    kind(10, "timeout now", MessageType::MsgTimeoutNow, TERM, 0),
    kind(11, "read request", MessageType::MsgReadIndex, READ, CONTEXT),
    kind(12, "read response", MessageType::MsgReadIndexResp, TERM | INDEX | READ, CONTEXT),
];

fn kind_of_code(code: u8) -> Option<&'static Kind> {
    KINDS.get(usize::from(code).wrapping_sub(1))
}

fn kind_of_message(message: MessageType) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.message == message)
}

/// Returns the node of a peer.
pub fn node_of(peer: u64) -> u32 {
    (peer >> 32) as u32
}

// -- writing ----------------------------------------------------------------------------------------------------------

/// Appends the frames of a message to `out`: one, or several if it has too many entries for one.
///
/// Of `flags`, SLEEP and QUIET are set only in frames of a kind that has these flags. Fails, and appends nothing, if
/// the message is of a kind that never leaves a node, or if every receiver would refuse it.
pub fn encode(out: &mut Vec<u8>, group: u64, message: &Message, flags: u8) -> Result<(), String> {
    let start = out.len();
    // On an error, the frames of other groups before this one remain complete.
    check_numbers(message).and_then(|()| encode_all(out, group, message, flags)).inspect_err(|_| out.truncate(start))
}

fn check_numbers(message: &Message) -> Result<(), String> {
    check_ends(message)?;
    let Message { term, index, log_term, commit, commit_term, reject_hint, .. } = message;
    let meta = message.get_snapshot().get_metadata();
    let all = [term, index, log_term, commit, commit_term, reject_hint, &meta.index, &meta.term];
    all.into_iter().try_for_each(|value| check_number(*value, "a number"))
}

fn encode_all(out: &mut Vec<u8>, group: u64, message: &Message, flags: u8) -> Result<(), String> {
    let kind = kind_of_message(message.get_msg_type())
        .ok_or_else(|| format!("a message of type {:?} never leaves its node", message.get_msg_type()))?;
    if kind.message != MessageType::MsgAppend {
        return encode_one(out, group, kind, message, &[], flags);
    }
    if let Some(entry) = message.entries.iter().zip(message.index + 1..).find(|(entry, at)| entry.index != *at) {
        return Err(format!("entry {} at the place of {}", entry.0.index, entry.1));
    }
    let items = message.entries.iter().map(item_of_entry).collect::<Result<Vec<_>, _>>()?;
    let mut head = message.clone();
    head.entries.clear();
    for (at, part) in items.chunks(ENTRIES_MAX).enumerate() {
        if at > 0 {
            head.index = message.index + (at * ENTRIES_MAX) as u64;
            head.log_term = items[at * ENTRIES_MAX - 1].term;
        }
        encode_one(out, group, kind, &head, part, flags & !QUIET)?;
    }
    if items.is_empty() {
        encode_one(out, group, kind, message, &[], flags)?;
    }
    Ok(())
}

fn encode_one(
    out: &mut Vec<u8>,
    group: u64,
    kind: &Kind,
    message: &Message,
    items: &[Item],
    asked: u8,
) -> Result<(), String> {
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    let mut flags = asked & kind.flags & (SLEEP | QUIET) | if message.reject { REJECT } else { 0 };
    let mut count = items.len();
    let mut numbers = [
        group,
        message.from,
        message.to,
        message.term,
        message.index,
        message.log_term,
        message.commit,
        message.commit_term,
        message.reject_hint,
        0,
        0,
    ];
    for item in items {
        put_item(out, item);
    }
    match kind.message {
        MessageType::MsgSnapshot => {
            let meta = message.get_snapshot().get_metadata();
            (numbers[4], numbers[5]) = (meta.index, meta.term);
            count = put_snapshot(out, message.get_snapshot())?;
        }
        MessageType::MsgRequestVote if &message.context[..] == CAMPAIGN_TRANSFER => flags |= TRANSFER,
        _ => {}
    }
    if let Some((reader, context)) = read_of(kind, message)? {
        flags |= CONTEXT;
        (numbers[9], numbers[10]) = (reader, context);
    }
    let header = &mut out[start..start + HEADER_SIZE];
    header[8..12].copy_from_slice(&[VERSION, kind.code, flags, 0]);
    header[12..16].copy_from_slice(&(count as u32).to_le_bytes());
    for (at, number) in numbers.iter().enumerate() {
        header[16 + at * 8..24 + at * 8].copy_from_slice(&number.to_le_bytes());
    }
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_le_bytes());
    let check = checksum(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
    Ok(())
}

fn checksum(bytes: &[u8]) -> u32 {
    xxh64(bytes, 0) as u32
}

/// Appends descriptor and membership; returns the number of peers.
fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) -> Result<usize, String> {
    let conf = snapshot.get_metadata().get_conf_state();
    let lists = [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next];
    let count = check_size(conf)?;
    let mut body = [0; DESCRIPTOR_SIZE];
    if snapshot.data.len() != DESCRIPTOR_SIZE {
        return Err(format!("a snapshot with a descriptor of {} bytes", snapshot.data.len()));
    }
    body.copy_from_slice(&snapshot.data);
    out.extend_from_slice(&body);
    out.extend(lists.iter().map(|list| list.len() as u8));
    out.extend_from_slice(&[u8::from(conf.auto_leave), 0, 0, 0]);
    for peer in lists.into_iter().flatten() {
        out.extend_from_slice(&peer.to_le_bytes());
    }
    Ok(count)
}

/// Returns the reader and the context of a message that confirms a read.
fn read_of(kind: &Kind, message: &Message) -> Result<Option<(u64, u64)>, String> {
    if kind.fields & READ == 0 {
        return Ok(None);
    }
    let bytes: &[u8] = match kind.message {
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
            message.entries.first().map_or(&[][..], |entry| &entry.data[..])
        }
        _ => &message.context,
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    read_of_context(bytes).map(Some).ok_or_else(|| format!("a context of {} bytes", bytes.len()))
}

/// Returns the bytes by which the engine identifies a read.
pub fn context_of_read(reader: u64, context: u64) -> Vec<u8> {
    [reader.to_le_bytes(), context.to_le_bytes()].concat()
}

/// Returns the reader and the context in these bytes.
pub fn read_of_context(bytes: &[u8]) -> Option<(u64, u64)> {
    (bytes.len() == 16).then(|| (number(bytes, 0), number(bytes, 8)))
}

// -- reading ----------------------------------------------------------------------------------------------------------

/// Reads all frames of a batch, or none.
pub fn decode_all(bytes: &[u8]) -> Result<Vec<Frame>, String> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (frame, size) = decode(&bytes[at..]).map_err(|text| format!("frame at byte {at}: {text}"))?;
        frames.push(frame);
        at += size;
    }
    Ok(frames)
}

/// Reads the frame at the start of `bytes`; returns it and its size.
pub fn decode(bytes: &[u8]) -> Result<(Frame, usize), String> {
    if bytes.len() < HEADER_SIZE {
        return Err(format!("{} bytes, a header has {HEADER_SIZE}", bytes.len()));
    }
    let size = short(bytes, 0) as usize;
    if !(HEADER_SIZE..=FRAME_MAX).contains(&size) {
        return Err(format!("size {size}, it lies between {HEADER_SIZE} and {FRAME_MAX}"));
    }
    if size > bytes.len() {
        return Err(format!("size {size}, only {} bytes are there", bytes.len()));
    }
    let bytes = &bytes[..size];
    let (told, found) = (short(bytes, 4), checksum(&bytes[8..]));
    if told != found {
        return Err(format!("checksum {told:08x}, the bytes have {found:08x}"));
    }
    if bytes[8] != VERSION {
        return Err(format!("version {}, this node knows {VERSION}", bytes[8]));
    }
    let kind = kind_of_code(bytes[9]).ok_or_else(|| format!("kind {} is not known", bytes[9]))?;
    read(bytes, kind).map(|frame| (frame, size)).map_err(|text| format!("{}: {text}", kind.name))
}

fn read(bytes: &[u8], kind: &Kind) -> Result<Frame, String> {
    let flags = bytes[10];
    if flags & !kind.flags != 0 {
        return Err(format!("flags {flags:#04x}, it knows {:#04x}", kind.flags));
    }
    if bytes[11] != 0 {
        return Err(format!("byte 11 is {}, it is 0", bytes[11]));
    }
    let count = short(bytes, 12) as usize;
    let group = number(bytes, 16);
    if group == 0 {
        return Err("group 0".to_owned());
    }
    let mut message = Message::default();
    message.set_msg_type(kind.message);
    message.reject = flags & REJECT != 0;
    read_numbers(bytes, kind, &mut message)?;
    read_context(bytes, kind, &mut message)?;
    let rest = &bytes[HEADER_SIZE..];
    if flags & QUIET != 0 && count != 0 {
        return Err(format!("flags {flags:#04x}, {count} entries need an answer"));
    }
    match kind.message {
        MessageType::MsgAppend => read_entries(rest, count, &mut message)?,
        MessageType::MsgSnapshot => read_snapshot(rest, count, &mut message)?,
        _ if count != 0 => return Err(format!("count {count}, it has none")),
        _ if !rest.is_empty() => return Err(format!("{} bytes after the header", rest.len())),
        _ => {}
    }
    if flags & TRANSFER != 0 {
        message.context = CAMPAIGN_TRANSFER.into();
    }
    Ok(Frame { group, flags, message })
}

fn read_numbers(bytes: &[u8], kind: &Kind, message: &mut Message) -> Result<(), String> {
    (message.from, message.to) = (number(bytes, 24), number(bytes, 32));
    check_ends(message)?;
    let field = |at: usize, which: u16, name: &str| -> Result<u64, String> {
        let value = number(bytes, at);
        if kind.fields & which == 0 && value != 0 {
            return Err(format!("{name} {value}, it has none"));
        }
        check_number(value, name)?;
        Ok(value)
    };
    message.term = field(40, TERM, "term")?;
    message.index = field(48, INDEX, "index")?;
    message.log_term = field(56, LOG_TERM, "log_term")?;
    message.commit = field(64, COMMIT, "commit")?;
    message.commit_term = field(72, COMMIT_TERM, "commit_term")?;
    message.reject_hint = field(80, HINT, "hint")?;
    if kind.fields & TERM != 0 && message.term == 0 {
        return Err("term 0".to_owned());
    }
    if message.log_term > message.term {
        return Err(format!("log_term {} after term {}", message.log_term, message.term));
    }
    Ok(())
}

fn check_ends(message: &Message) -> Result<(), String> {
    peer(message.from, "from")?;
    peer(message.to, "to")?;
    if message.from == message.to {
        return Err(format!("from and to are both {}", message.from));
    }
    Ok(())
}

/// Checks a term or an index.
pub fn check_number(value: u64, name: &str) -> Result<(), String> {
    if value >= NUMBER_MAX {
        return Err(format!("{name} {value}, {NUMBER_MAX} is the limit"));
    }
    Ok(())
}

/// Returns a valid peer number, or an error that names the field.
pub fn peer(value: u64, name: &str) -> Result<u64, String> {
    if value == 0 || node_of(value) == 0 {
        return Err(format!("{name} {value} is not a peer"));
    }
    Ok(value)
}

fn read_context(bytes: &[u8], kind: &Kind, message: &mut Message) -> Result<(), String> {
    let (reader, context) = (number(bytes, 88), number(bytes, 96));
    if bytes[10] & CONTEXT == 0 {
        if (reader, context) != (0, 0) {
            return Err(format!("reader {reader} and context {context} without their flag"));
        }
        if matches!(kind.message, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp) {
            return Err("no context".to_owned());
        }
        return Ok(());
    }
    peer(reader, "reader")?;
    let carried = context_of_read(reader, context);
    if matches!(kind.message, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp) {
        let mut entry = Entry::default();
        entry.data = carried.into();
        message.entries.push(entry);
    } else {
        message.context = carried.into();
    }
    Ok(())
}

fn read_entries(rest: &[u8], count: usize, message: &mut Message) -> Result<(), String> {
    if count > ENTRIES_MAX {
        return Err(format!("{count} entries, {ENTRIES_MAX} is the limit"));
    }
    if rest.len() != count * ENTRY_SIZE {
        return Err(format!("{count} entries in {} bytes, they have {}", rest.len(), count * ENTRY_SIZE));
    }
    if (message.index == 0) != (message.log_term == 0) {
        return Err(format!("index {} with log_term {}", message.index, message.log_term));
    }
    let mut term = message.log_term;
    for (at, bytes) in rest.chunks_exact(ENTRY_SIZE).enumerate() {
        let item = read_item(bytes).map_err(|text| format!("entry {at}: {text}"))?;
        if item.term < term || item.term > message.term {
            return Err(format!("entry {at}: term {}, it lies between {term} and {}", item.term, message.term));
        }
        term = item.term;
        message.entries.push(entry_of_item(&item, message.index + 1 + at as u64));
    }
    Ok(())
}

fn read_snapshot(rest: &[u8], count: usize, message: &mut Message) -> Result<(), String> {
    let wanted = DESCRIPTOR_SIZE + 8 + count * 8;
    if count > PEERS_MAX || rest.len() != wanted {
        return Err(format!("{count} peers in {} bytes, they have {wanted}", rest.len()));
    }
    let (descriptor, rest) = rest.split_at(DESCRIPTOR_SIZE);
    let (counts, rest) = rest.split_at(8);
    let sizes: Vec<usize> = counts[..4].iter().map(|size| usize::from(*size)).collect();
    if sizes.iter().sum::<usize>() != count {
        return Err(format!("lists of {sizes:?} peers, {count} in all"));
    }
    if counts[4] > 1 || counts[5..8] != [0; 3] {
        return Err(format!("flags of the configuration are {:?}", &counts[4..8]));
    }
    let mut peers = rest.chunks_exact(8).map(|bytes| number(bytes, 0));
    let mut list = |size: usize| peers.by_ref().take(size).collect::<Vec<u64>>();
    let mut conf = ConfState::default();
    conf.voters = list(sizes[0]);
    conf.learners = list(sizes[1]);
    conf.voters_outgoing = list(sizes[2]);
    conf.learners_next = list(sizes[3]);
    conf.auto_leave = counts[4] == 1;
    check_conf(&conf)?;
    if message.index == 0 || message.log_term == 0 {
        return Err(format!("index {} with log_term {}", message.index, message.log_term));
    }
    let (index, term) = (message.index, message.log_term);
    (message.index, message.log_term) = (0, 0);
    let snapshot = message.mut_snapshot();
    snapshot.data = descriptor.to_vec().into();
    let meta = snapshot.mut_metadata();
    meta.set_conf_state(conf);
    (meta.index, meta.term) = (index, term);
    Ok(())
}

/// Returns the number of peers in all lists of a membership, or an error if they are too many for a frame.
pub fn check_size(conf: &ConfState) -> Result<usize, String> {
    let lists = [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next];
    let count = lists.iter().map(|list| list.len()).sum();
    if count > PEERS_MAX {
        return Err(format!("a configuration of {count} peers, {PEERS_MAX} is the limit"));
    }
    Ok(count)
}

/// Checks that the engine can use a membership.
pub fn check_conf(conf: &ConfState) -> Result<(), String> {
    let lists = [
        ("voters", &conf.voters),
        ("learners", &conf.learners),
        ("outgoing voters", &conf.voters_outgoing),
        ("next learners", &conf.learners_next),
    ];
    check_size(conf)?;
    for (name, list) in lists {
        for (at, one) in list.iter().enumerate() {
            peer(*one, name)?;
            if list[..at].contains(one) {
                return Err(format!("{name} name {one} twice"));
            }
        }
    }
    if conf.voters.is_empty() {
        return Err("no voters".to_owned());
    }
    let is_voter = |one: &&u64| conf.voters.contains(*one) || conf.voters_outgoing.contains(*one);
    if let Some(one) = conf.learners.iter().find(is_voter) {
        return Err(format!("peer {one} is a voter and a learner"));
    }
    if let Some(one) = conf.learners_next.iter().find(|one| !conf.voters_outgoing.contains(*one)) {
        return Err(format!("next learner {one} is no outgoing voter"));
    }
    if let Some(one) = conf.learners_next.iter().find(|one| conf.voters.contains(*one)) {
        return Err(format!("next learner {one} is a voter"));
    }
    if conf.auto_leave && conf.voters_outgoing.is_empty() {
        return Err("leaves a joint configuration that it is not in".to_owned());
    }
    Ok(())
}

fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the number at an offset.
pub fn number(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}
