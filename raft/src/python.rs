//! The interface for Python: `Groups` and the values that it returns.
//!
//! Only converts. `python/pyjs_raft/_engine.pyi` has the types and describes each call.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use raft::eraftpb::{ConfState, HardState};

use crate::entry::{Item, DESCRIPTOR_SIZE};
use crate::frame;
use crate::group::{Birth, Timing};
use crate::groups::{self, Batches, Failure};

create_exception!(pyjs_raft, RaftError, PyException, "The base of this package's errors.");
create_exception!(pyjs_raft, FrameError, RaftError, "A batch of frames that was refused as a whole.");
create_exception!(pyjs_raft, UnknownGroup, RaftError, "The group is not open on this node.");
create_exception!(pyjs_raft, Quarantined, RaftError, "The group has panicked; the text names it and says how.");
create_exception!(pyjs_raft, Refused, RaftError, "The group cannot do that now; the text says why.");

/// Changes with every change of the interface in `_engine.pyi`; a caller refuses an engine with another number.
const INTERFACE: u32 = 1;

type Entry = (u64, u8, Vec<u8>);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Unknown(id) => UnknownGroup::new_err(format!("group {id} is not open")),
            Failure::Quarantined(text) => Quarantined::new_err(text),
            Failure::Refused(text) => Refused::new_err(text),
        }
    }
}

/// A membership. Only a joint membership has `outgoing` voters, and may have `next_learners`.
#[pyclass(frozen, get_all, eq, module = "pyjs_raft")]
#[derive(Clone, PartialEq)]
struct Conf {
    voters: Vec<u64>,
    learners: Vec<u64>,
    outgoing: Vec<u64>,
    next_learners: Vec<u64>,
    auto_leave: bool,
}

#[pymethods]
impl Conf {
    #[new]
    #[pyo3(signature = (voters=vec![], learners=vec![], outgoing=vec![], next_learners=vec![], auto_leave=false))]
    fn new(
        voters: Vec<u64>,
        learners: Vec<u64>,
        outgoing: Vec<u64>,
        next_learners: Vec<u64>,
        auto_leave: bool,
    ) -> Conf {
        Conf { voters, learners, outgoing, next_learners, auto_leave }
    }

    fn __repr__(&self) -> String {
        let Conf { voters, learners, outgoing, next_learners, auto_leave } = self;
        let auto_leave = if *auto_leave { "True" } else { "False" };
        format!("Conf({voters:?}, {learners:?}, {outgoing:?}, {next_learners:?}, {auto_leave})")
    }
}

impl From<ConfState> for Conf {
    fn from(mut conf: ConfState) -> Conf {
        // The engine stores sets, whose order has no meaning.
        for list in [&mut conf.voters, &mut conf.learners, &mut conf.voters_outgoing, &mut conf.learners_next] {
            list.sort_unstable();
        }
        Conf {
            voters: conf.voters,
            learners: conf.learners,
            outgoing: conf.voters_outgoing,
            next_learners: conf.learners_next,
            auto_leave: conf.auto_leave,
        }
    }
}

impl Conf {
    fn to_state(&self) -> ConfState {
        let mut conf = ConfState::default();
        conf.voters.clone_from(&self.voters);
        conf.learners.clone_from(&self.learners);
        conf.voters_outgoing.clone_from(&self.outgoing);
        conf.learners_next.clone_from(&self.next_learners);
        conf.auto_leave = self.auto_leave;
        conf
    }
}

/// A state of the application at an index: the content of a snapshot frame.
#[pyclass(frozen, get_all, module = "pyjs_raft")]
struct Point {
    index: u64,
    term: u64,
    conf: Py<Conf>,
    descriptor: Py<PyBytes>,
}

/// The data of one group that must become durable.
#[pyclass(frozen, get_all, module = "pyjs_raft")]
struct Write {
    group: u64,
    hard: Option<(u64, u64, u64)>,
    snapshot: Option<Py<Point>>,
    first: u64,
    entries: Py<PyList>,
}

/// The results of one turn, for all groups.
#[pyclass(frozen, get_all, module = "pyjs_raft")]
struct Ready {
    token: u64,
    must_sync: bool,
    frames: Py<PyList>,
    writes: Py<PyList>,
    committed: Py<PyList>,
    reads: Py<PyList>,
    roles: Py<PyList>,
    confs: Py<PyList>,
    wanted: Py<PyList>,
    snapshots: Py<PyList>,
}

/// The current state of one group.
#[pyclass(frozen, get_all, module = "pyjs_raft")]
struct Status {
    name: String,
    peer: u64,
    role: u8,
    leader: u64,
    term: u64,
    vote: u64,
    commit: u64,
    start: u64,
    last: u64,
    asleep: bool,
    conf: Py<Conf>,
    matched: Vec<(u64, u64)>,
}

#[pyclass(module = "pyjs_raft")]
struct Groups {
    inner: groups::Groups,
}

#[pymethods]
impl Groups {
    #[new]
    #[pyo3(signature = (node, *, seed, boot, heartbeat_ticks=5, election_ticks=20, sleep_ticks=10, stagger_ticks=4, watch_ticks=6000))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        node: u32,
        seed: u64,
        boot: u64,
        heartbeat_ticks: u16,
        election_ticks: u16,
        sleep_ticks: u32,
        stagger_ticks: u16,
        watch_ticks: u16,
    ) -> PyResult<Groups> {
        let timing = Timing {
            heartbeat: heartbeat_ticks.into(),
            election: election_ticks.into(),
            sleep: sleep_ticks,
            stagger: stagger_ticks.into(),
            watch: watch_ticks.into(),
        };
        let inner = groups::Groups::new(node, seed, boot, timing).map_err(PyValueError::new_err)?;
        Ok(Groups { inner })
    }

    #[pyo3(signature = (group, name, peer, conf, *, term=0, vote=0, commit=0, start=1, start_term=1, entries=vec![]))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        &mut self,
        group: u64,
        name: &str,
        peer: u64,
        conf: &Conf,
        term: u64,
        vote: u64,
        commit: u64,
        start: u64,
        start_term: u64,
        entries: Vec<Entry>,
    ) -> PyResult<()> {
        let mut hard = HardState::default();
        (hard.term, hard.vote, hard.commit) = (term.max(start_term), vote, commit);
        let items = entries.iter().map(item_of).collect::<PyResult<Vec<_>>>()?;
        let birth = Birth { peer, hard, start, start_term, conf: conf.to_state(), items };
        self.inner.open(group, name, birth).map_err(PyValueError::new_err)
    }

    fn close(&mut self, group: u64) -> PyResult<()> {
        Ok(self.inner.close(group)?)
    }

    fn tick(&mut self) {
        self.inner.tick();
    }

    fn step(&mut self, frames: &[u8]) -> PyResult<Vec<(u64, u64)>> {
        self.inner.step(frames).map_err(FrameError::new_err)
    }

    fn propose(&mut self, proposals: Vec<(u64, Vec<u8>)>) -> PyResult<Vec<Option<(u64, u64)>>> {
        let all = proposals.iter().map(|(id, bytes)| Ok((*id, descriptor_of(bytes)?)));
        let all = all.collect::<PyResult<Vec<_>>>()?;
        Ok(all.into_iter().map(|(id, descriptor)| self.inner.propose(id, descriptor)).collect())
    }

    fn has_ready(&self) -> bool {
        self.inner.has_ready()
    }

    fn ready(&mut self, py: Python<'_>) -> PyResult<Ready> {
        let turn = self.inner.ready();
        let writes = turn.writes.into_iter().map(|write| write_of(py, write)).collect::<PyResult<Vec<_>>>()?;
        let confs = turn.confs.into_iter().map(|(id, index, conf)| (id, index, Conf::from(conf)));
        let committed = turn
            .committed
            .iter()
            .map(|(id, index, item)| (*id, *index, item.term, item.kind, PyBytes::new(py, &item.body)));
        Ok(Ready {
            token: turn.token,
            must_sync: turn.must_sync,
            frames: batches_of(py, turn.batches)?,
            writes: PyList::new(py, writes)?.unbind(),
            committed: PyList::new(py, committed.collect::<Vec<_>>())?.unbind(),
            reads: PyList::new(py, turn.reads)?.unbind(),
            roles: PyList::new(py, turn.roles)?.unbind(),
            confs: PyList::new(py, confs.collect::<Vec<_>>())?.unbind(),
            wanted: PyList::new(py, turn.wanted)?.unbind(),
            snapshots: PyList::new(py, turn.snapshots)?.unbind(),
        })
    }

    fn stored(&mut self, py: Python<'_>, token: u64) -> PyResult<Py<PyList>> {
        batches_of(py, self.inner.stored(token).map_err(PyValueError::new_err)?)
    }

    fn installed(&mut self, py: Python<'_>, group: u64, index: u64) -> PyResult<Py<PyList>> {
        batches_of(py, self.inner.installed(group, index)?)
    }

    fn compact(&mut self, group: u64, index: u64) -> PyResult<(u64, u64, Conf)> {
        let (index, term, conf) = self.inner.compact(group, index)?;
        Ok((index, term, conf.into()))
    }

    fn offer_snapshot(&mut self, group: u64, index: u64, descriptor: &[u8]) -> PyResult<()> {
        Ok(self.inner.offer(group, index, descriptor_of(descriptor)?)?)
    }

    fn report_snapshot(&mut self, group: u64, peer: u64, done: bool) -> PyResult<()> {
        Ok(self.inner.report_snapshot(group, peer, done)?)
    }

    fn change(&mut self, group: u64, changes: Vec<(u8, u64)>) -> PyResult<(u64, u64)> {
        Ok(self.inner.change(group, &changes)?)
    }

    fn transfer(&mut self, group: u64, peer: u64) -> PyResult<()> {
        Ok(self.inner.transfer(group, peer)?)
    }

    fn campaign(&mut self, group: u64) -> PyResult<()> {
        Ok(self.inner.campaign(group)?)
    }

    fn set_prompt(&mut self, group: u64, prompt: bool) -> PyResult<()> {
        Ok(self.inner.set_prompt(group, prompt)?)
    }

    fn set_doubtful(&mut self, group: u64, doubtful: bool) -> PyResult<()> {
        Ok(self.inner.set_doubtful(group, doubtful)?)
    }

    fn set_floor(&mut self, group: u64, term: u64, index: u64) -> PyResult<()> {
        Ok(self.inner.set_floor(group, term, index)?)
    }

    fn forget_answers(&mut self, group: u64, peer: u64) -> PyResult<()> {
        Ok(self.inner.forget_answers(group, peer)?)
    }

    fn read_index(&mut self, group: u64) -> PyResult<u64> {
        Ok(self.inner.read_index(group)?)
    }

    fn node_silent(&mut self, node: u32) -> PyResult<()> {
        self.inner.node_silent(node).map_err(PyValueError::new_err)
    }

    fn node_heard(&mut self, node: u32) {
        self.inner.node_heard(node);
    }

    fn quarantined(&self) -> Vec<(u64, String)> {
        self.inner.quarantined().iter().map(|(id, text)| (*id, text.clone())).collect()
    }

    fn counts(&self) -> (usize, usize) {
        self.inner.counts()
    }

    fn status(&self, py: Python<'_>, group: u64) -> PyResult<Status> {
        let one = self.inner.group(group)?;
        let raft = one.raft();
        let mut matched: Vec<(u64, u64)> = Vec::new();
        if one.is_leader() {
            matched.extend(raft.prs().iter().map(|(peer, progress)| (*peer, progress.matched)));
            matched.sort_unstable();
        }
        Ok(Status {
            name: one.name.clone(),
            peer: one.peer,
            role: one.role(),
            leader: raft.leader_id,
            term: raft.term,
            vote: raft.vote,
            commit: raft.raft_log.committed,
            start: one.log().start(),
            last: raft.raft_log.last_index(),
            asleep: one.asleep,
            conf: Py::new(py, Conf::from(one.log().conf().clone()))?,
            matched,
        })
    }

    fn term_at(&self, group: u64, index: u64) -> PyResult<Option<u64>> {
        Ok(self.inner.group(group)?.term_at(index))
    }

    fn entry(&self, py: Python<'_>, group: u64, index: u64) -> PyResult<Option<(u64, u8, Py<PyBytes>)>> {
        let found = self.inner.group(group)?.entry(index);
        Ok(found.map(|item| (item.term, item.kind, PyBytes::new(py, &item.body).unbind())))
    }
}

fn descriptor_of(bytes: &[u8]) -> PyResult<[u8; DESCRIPTOR_SIZE]> {
    bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!("a descriptor of {} bytes, it has {DESCRIPTOR_SIZE}", bytes.len()))
    })
}

fn item_of((term, kind, body): &Entry) -> PyResult<Item> {
    Ok(Item { term: *term, kind: *kind, body: descriptor_of(body)? })
}

fn point_of(py: Python<'_>, found: (u64, u64, ConfState, [u8; DESCRIPTOR_SIZE])) -> PyResult<Py<Point>> {
    let (index, term, conf, descriptor) = found;
    let conf = Py::new(py, Conf::from(conf))?;
    Py::new(py, Point { index, term, conf, descriptor: PyBytes::new(py, &descriptor).unbind() })
}

fn write_of(py: Python<'_>, write: groups::Write) -> PyResult<Py<Write>> {
    let entries = write.items.iter().map(|item| (item.term, item.kind, PyBytes::new(py, &item.body)));
    let one = Write {
        group: write.group,
        hard: write.hard.map(|hard| (hard.term, hard.vote, hard.commit)),
        snapshot: write.snapshot.map(|found| point_of(py, found)).transpose()?,
        first: write.first,
        entries: PyList::new(py, entries.collect::<Vec<_>>())?.unbind(),
    };
    Py::new(py, one)
}

fn batches_of(py: Python<'_>, batches: Batches) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for (node, batch) in batches {
        let payloads = PyList::new(py, batch.payloads)?;
        all.append(PyTuple::new(
            py,
            [node.into_pyobject(py)?.into_any(), PyBytes::new(py, &batch.bytes).into_any(), payloads.into_any()],
        )?)?;
    }
    Ok(all.unbind())
}

/// Returns group, index, term and descriptor of each entry with a payload in a batch from a node.
#[pyfunction]
#[pyo3(signature = (frames, node=0))]
fn payloads_of(py: Python<'_>, frames: &[u8], node: u32) -> PyResult<Vec<(u64, u64, u64, Py<PyBytes>)>> {
    let found = groups::payloads_of(frames, node).map_err(FrameError::new_err)?;
    let to_python = |(group, index, term, body): (u64, u64, u64, [u8; DESCRIPTOR_SIZE])| {
        (group, index, term, PyBytes::new(py, &body).unbind())
    };
    Ok(found.into_iter().map(to_python).collect())
}

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Groups>()?;
    module.add_class::<Conf>()?;
    module.add_class::<Point>()?;
    module.add_class::<Ready>()?;
    module.add_class::<Status>()?;
    module.add_class::<Write>()?;
    module.add_function(wrap_pyfunction!(payloads_of, module)?)?;
    module.add("RaftError", py.get_type::<RaftError>())?;
    module.add("FrameError", py.get_type::<FrameError>())?;
    module.add("UnknownGroup", py.get_type::<UnknownGroup>())?;
    module.add("Quarantined", py.get_type::<Quarantined>())?;
    module.add("Refused", py.get_type::<Refused>())?;
    module.add("INTERFACE", INTERFACE)?;
    module.add("FRAME_VERSION", frame::VERSION)?;
    module.add("DESCRIPTOR_SIZE", DESCRIPTOR_SIZE)?;
    module.add("FRAME_SIZE_MAX", frame::FRAME_MAX)?;
    Ok(())
}
