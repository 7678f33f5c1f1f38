"""One simulation: random clients, several processes of a server in sequence on one disk, and checks between them.

A run is a sequence of processes. During each, clients act, jobs of the I/O threads run and end at random moments, and
time passes. A process ends with a stop, kill -9 or a power cut, either while the server is idle or in the middle of a
call of the disk. Then the next process starts, and everything is read and compared with the model (checkers.py). At
the end, all consumers are drained.

Long because each kind of request is made, and its answer handled, in one place.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

from tests.sim.audits import audit_stream
from tests.sim.batches import CONFIGS as BATCH_CONFIGS
from tests.sim.batches import Batches
from tests.sim.checkers import ConsumerModel, Publish, Removal, StreamModel, demand
from tests.sim.disk import SimDisk
from tests.sim.faults import plan_failure
from tests.sim.features import CONFIGS, Features
from tests.sim.process import Process, SimClient
from tests.sim.resets import reset_consumer
from tests.support.disk import Crash

import pyjs.jetstream.consumer.record as consumer_record
import pyjs.jetstream.files.tails as tails
import pyjs.jetstream.manage.purging as purging
import pyjs.jetstream.manage.segments as segments
from pyjs.testing import Frame

NEVER_NS = 1 << 62
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
TOKENS = ("a", "b", "c", "d")
SURE_REFUSALS = (10071, 10077, 10054, 10060, 10070, 10109)
Reply = Callable[[Frame], None]


class World:
    """The run of one seed."""

    process_class: type[Process] = Process
    disk_class: type[SimDisk] = SimDisk

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.seed = seed
        self.verbose = verbose
        self.rng = random.Random(seed)
        rng = self.rng
        self.disk = self.disk_class(random.Random(seed + 1_000_003))
        self.always = rng.random() < 0.5
        self.interval_ns = rng.choice((200, 1000)) * NS_PER_MS
        self.segment_size = rng.choice((2048, 8192, 40960, 49152, 65536))
        self.faults = rng.random() < 0.25  # the disk fails at times, in addition to crashes
        self.big = rng.random() < 0.5  # large payloads, so that segments become full
        self.nasty = random.Random(seed + 2_000_003)  # the kinds of faults
        self.now_ns = 1_700_000_000 * NS_PER_S
        self.elapsed_ns = 1000 * NS_PER_S  # time in all earlier processes, and an offset before the first
        self.life_began_ns = 0
        self.doubted_ns = NEVER_NS  # a sync failed: answers since this time are uncertain
        self.sync_failed = False  # a sync failed, or another call on which a later sync depends, at any time
        self.process: Process
        self.clients: list[SimClient] = []
        self.streams: dict[str, StreamModel] = {}
        self.former: list[StreamModel] = []
        self.waiting: dict[bytes, Reply] = {}  # requests without an answer, by inbox
        self.number = 0  # number of the last message or request
        self.lives = 0
        self.power_lost = False  # the previous process ended with a power cut
        # a process has ended with a power cut; each later start may report the damage that the cut left
        self.ever_cut = False
        self.trace: list[str] = []
        self.digest = 0
        self.draining = False
        self.features = Features(self)
        self.batches = Batches(self)

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{(self.now() - 1_700_000_000 * NS_PER_S) / NS_PER_S:9.3f} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.trace.append(line)
        if self.verbose:
            print(line)

    def now(self) -> int:
        """Return the current time of the process."""
        return self.process.clock.now_ns() if self.lives else self.now_ns

    def moment(self) -> int:
        """Return the virtual time that has passed in all processes."""
        return self.elapsed_ns + self.now() - self.life_began_ns if self.lives else 0

    def slack_ns(self) -> int:
        """Return the age of the oldest answer that a power cut may invalidate in interval mode."""
        return 2 * self.interval_ns + 2 * max(
            (each.longest_wait_ns() for each in self.process.threads), default=0
        )

    # -- the run -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all processes of the server, one after another.

        Raises:
            Violation: the server broke a promise.
        """
        sizes = segments.SEGMENT_SIZE_MAX, segments.SEGMENT_SIZE_QUEUE, segments.SEGMENT_SIZE_MIN
        hooks, steps = (sys.unraisablehook, sys.excepthook), (purging.AT_ONCE, purging.STEP)
        if self.seed % 2:  # purges and reduced limits take many steps, with kills and publishes between them
            purging.AT_ONCE, purging.STEP = 3, 2
        tails_min = tails.STREAMS_MIN
        deltas = consumer_record.DELTAS_SIZE_MIN, consumer_record.DELTAS_PER_SNAPSHOT
        if self.seed % 4 > 1:  # small indexes share one file, and whole states of consumers are written often
            tails.STREAMS_MIN = 1
            consumer_record.DELTAS_SIZE_MIN, consumer_record.DELTAS_PER_SNAPSHOT = 64, 0
        segments.SEGMENT_SIZE_MAX = segments.SEGMENT_SIZE_QUEUE = self.segment_size
        segments.SEGMENT_SIZE_MIN = min(self.segment_size, sizes[2])
        # Compiled code that cannot raise reports the end of its process here; this output is not needed.
        sys.unraisablehook = lambda each: None if each.exc_type is Crash else hooks[0](each)
        sys.excepthook = lambda kind, *rest: None if kind is Crash else hooks[1](kind, *rest)
        try:
            self.say(
                f"seed {self.seed} always {self.always} interval {self.interval_ns} segment {self.segment_size}"
            )
            for _ in range(self.rng.randrange(3, 6)):
                self._live()
            self._begin()
            self._drain()
            self._end("stop")
            self._begin()
            self._end("stop")
        finally:
            segments.SEGMENT_SIZE_MAX, segments.SEGMENT_SIZE_QUEUE, segments.SEGMENT_SIZE_MIN = sizes
            sys.unraisablehook, sys.excepthook = hooks
            purging.AT_ONCE, purging.STEP = steps
            tails.STREAMS_MIN = tails_min
            consumer_record.DELTAS_SIZE_MIN, consumer_record.DELTAS_PER_SNAPSHOT = deltas
            self.digest = zlib.crc32(b"%d" % self.disk.digest, self.digest)

    def _live(self) -> None:
        rng = self.rng
        self._begin(rng.randrange(30) if rng.random() < 0.1 else None)
        how = rng.choice(("power", "power", "kill", "stop"))
        steps = rng.randrange(15, 60)
        dies_at = rng.randrange(steps) if how != "stop" and rng.random() < 0.7 else -1
        fails_at = rng.randrange(steps) if self.faults and rng.random() < 0.5 else -1
        for step in range(steps):
            if step == dies_at:
                self.disk.crash_in = rng.randrange(40)
            if step == fails_at:
                plan_failure(self.disk, self.rng, self.nasty)
            if not self._alive(self._step):
                break
        if how == "stop" and rng.random() < 0.2:
            self.disk.crash_in = rng.randrange(40)
            how = rng.choice(("power", "kill", "stop"))
        self._end(how)

    def _alive(self, act: Callable[[], None]) -> bool:
        """Call `act`; return False if the process ended during the call."""
        try:
            act()
        except Crash:
            pass
        except Exception:
            if not self.disk.dead:
                raise
        if not self.disk.dead:
            return True
        self.collect()  # messages sent before the end
        return False

    def _begin(self, crash_in: int | None = None) -> None:
        """Start a process and check its streams; with `crash_in`, the first attempt ends early."""
        rng = self.rng
        while True:
            seed = rng.randrange(1 << 30)
            self.lives += 1
            self.life_began_ns = self.now_ns
            self.doubted_ns = NEVER_NS
            self.process = self.process_class(self.disk, self.now_ns, seed, self.always, self.interval_ns)
            self.disk.crash_in, crash_in = crash_in, None
            self.clients, self.waiting = [], {}
            if self._alive(self.process.start):
                self.disk.crash_in = None
                break
            self._died(rng.choice(("power", "kill")))
        self.say(f"life {self.lives} begins")
        self.batches.begin()
        self._check_log()
        self.clients = [self.process.client() for _ in range(3)]
        for at, client in enumerate(self.clients):
            client.send(b"SUB _I.%d.> %d\r\n" % (at, at + 1))
        self.process.run()
        self._adopt()
        self.audit(restarted=True)

    def _end(self, how: str) -> None:
        if not self.disk.dead and how == "stop" and self._alive(self.process.stop):
            self.say("stops")
            self.collect()
            demand(not self.disk.open_files, f"left open: {self.disk.open_files}")
            self.disk.end_process()
            self._take_failures()
            if self.disk.evicted or self.sync_failed:
                self._withdraw("power", False)
            self.elapsed_ns = self.moment()
            self.now_ns = self.life_began_ns = self.now() + self.rng.randrange(2 * NS_PER_S)
            self.power_lost = self.disk.evicted
            return
        self._died("kill" if how == "stop" else how)

    def _died(self, how: str) -> None:
        self._take_failures()
        self.say(f"ends by {how}{', in a call' if self.disk.dead else ''}")
        in_call = self.disk.dead
        if how == "power":
            self.disk.lose_power()
        else:
            self.disk.end_process()
        how = "power" if self.disk.evicted or self.sync_failed else how
        self._withdraw(how, in_call)
        self.power_lost = self.power_lost or how == "power"
        # The wall clock of the next process may be behind.
        self.elapsed_ns = self.moment() + 1
        self.now_ns = self.now() + self.rng.choice((0, 1, 500, 3000, -500)) * NS_PER_MS

    def _withdraw(self, how: str, in_call: bool) -> None:
        """Withdraw the promises that do not hold after the end of a process (`how` is "kill") or a power cut."""
        self.ever_cut = self.ever_cut or how == "power"
        for model in self.streams.values():
            model.cut = model.cut or how == "power" or in_call
        since = self.moment() if self.always else self.moment() - self.slack_ns()
        for model in self.streams.values():
            if how == "power":
                model.take_back(since, self.moment() - self.slack_ns())
            else:
                model.renew(since)
        if self.sync_failed:  # no earlier answer is certain, even after later syncs
            since = min(since, -1)
            self.sync_failed = False  # the next process writes again what may be lost, and its answers count
        self.features.died(how, since)
        self.batches.died(how, since)

    def _check_log(self) -> None:
        bad = [text for level, text in self.process.log.lines if level == "ERR"]
        for text in bad:
            self.say(f"log: {text}")
        demand(not bad or self.ever_cut or self.faults, f"errors at a start without a power cut: {bad}")

    # -- a step --------------------------------------------------------------------------------------------

    def _step(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._act(rng.randrange(len(self.clients)))
        self.process.run()
        self.collect()
        for thread in self.process.threads:
            for _ in range(rng.choice((0, 1, 2, 4))):
                thread.step()
                self.process.run()
        self.collect()
        self.process.advance(rng.choice((0, 0, 1, 10, 50, 200, 700 if rng.random() < 0.3 else 0)) * NS_PER_MS)
        self.collect()
        self._take_failures()
        if rng.random() < 0.03:
            self.audit()

    def _take_failures(self) -> None:
        """After a failed sync, treat the data that it should have covered as uncertain."""
        for model in self.streams.values():
            model.latest_ns = max(model.latest_ns, self.now())
        failed, self.disk.failed_calls = self.disk.failed_calls, []
        for kind, path in failed:
            self.say(f"{kind} of {path} failed")
            if kind in ("sync", "sync_dir", "syncfs"):
                self.doubted_ns = min(
                    self.doubted_ns, self.moment() - (0 if self.always else self.slack_ns())
                )
        if self.doubted_ns < self.moment() or (failed and self.always):
            for model in self.streams.values():
                model.doubt(self.doubted_ns)
                model.tainted = model.tainted or bool(failed)
            self.sync_failed = self.sync_failed or bool(failed)
        if self.always:
            self.doubted_ns = NEVER_NS

    def _act(self, at: int) -> None:
        rng = self.rng
        if self.features.rng.random() < 0.12:
            self.features.act(at)
            return
        if self.batches.rng.random() < 0.12:
            self.batches.act(at)
            return
        models = [model for model in self.streams.values() if model.exists]
        if not models or (len(models) < 2 and rng.random() < 0.05):
            self._create_stream(at)
            return
        model = rng.choice(models)
        chance = rng.random()
        if chance < 0.62:
            for _ in range(rng.choice((1, 1, 2, 8, 20) if self.big else (1, 1, 2, 4))):
                self._publish(at, model)
        elif chance < 0.67:
            self._delete_message(at, model)
        elif chance < 0.69:
            self._purge(at, model)
        elif chance < 0.73 and len(model.consumers) < 2:
            self._create_consumer(at, model)
        elif chance < 0.74:
            self._delete_consumer(at, model)
        elif chance < 0.75:
            self._update_stream(at, model)
        elif chance < 0.752:
            self._delete_stream(at, model)
        elif chance < 0.78:
            reset_consumer(self, at, model)
        elif chance < 0.87:
            self._pull(at, model)
        else:
            self._ack(at, model)

    def _request(self, at: int, subject: str, payload: bytes, reply: Reply, headers: bytes = b"") -> None:
        self.number += 1
        inbox = b"_I.%d.%d" % (at, self.number)
        self.waiting[inbox] = reply
        self._send(at, subject, payload, headers, inbox)

    def _send(self, at: int, subject: str, payload: bytes, headers: bytes = b"", inbox: bytes = b"") -> None:
        words = [subject.encode(), *([inbox] if inbox else [])]
        words = [b"HPUB", *words, b"%d" % len(headers)] if headers else [b"PUB", *words]
        line = b" ".join([*words, b"%d" % (len(headers) + len(payload))])
        self.clients[at].send(line + b"\r\n" + headers + payload + b"\r\n")

    def request_api(
        self, at: int, subject: str, body: dict[str, Any], reply: Callable[[dict[str, Any]], None]
    ) -> None:
        def answered(frame: Frame) -> None:
            if frame.headers:  # the status 503: no responders
                reply({"error": {"code": 503, "err_code": 0, "description": "no responders"}})
            else:
                reply(json.loads(frame.payload))

        self._request(at, f"$JS.API.{subject}", json.dumps(body).encode() if body else b"", answered)

    def collect(self) -> None:
        """Handle received messages: deliveries first, since the confirmation of an ack may be in the same turn."""
        frames = [frame for client in self.clients for frame in client.frames()]
        frames.sort(key=lambda frame: not frame.reply.startswith(b"$JS.ACK."))
        for frame in frames:
            if frame.reply.startswith(b"$JS.ACK."):
                self._delivered(frame)
            elif frame.subject in self.waiting:
                self.waiting.pop(frame.subject)(frame)
            elif frame.subject.endswith(b".$FI"):
                self.batches.heard(frame)

    # -- streams -------------------------------------------------------------------------------------------

    def _create_stream(self, at: int) -> None:
        rng = self.rng
        name = rng.choice(("S", "T"))
        if name in self.streams:
            return
        config = self._stream_config(name)
        model = StreamModel(name, config, self.moment)
        self.streams[name] = model

        def answered(body: dict[str, Any]) -> None:
            self.say(f"created {name}: {body.get('error', 'ok')}")
            if "error" in body:
                demand(self.faults or body["error"]["err_code"] != 10049, f"{name} not created: {body}")
                model.exists = None
                model.deleting = True
            else:
                model.exists = True

        self.say(f"create {config}")
        self.request_api(at, f"STREAM.CREATE.{name}", config, answered)

    def _stream_config(self, name: str) -> dict[str, Any]:
        rng = self.rng
        retention = rng.choice(("limits", "limits", "limits", "workqueue", "interest"))
        config: dict[str, Any] = {
            "name": name,
            "subjects": [f"{name}.*"],
            "retention": retention,
            "max_msgs": rng.choice((-1, -1, 20, 60)),
            "max_bytes": rng.choice((-1, -1, 20_000, 200_000)),
            "max_age": rng.choice((0, 0, 5 * NS_PER_S, 30 * NS_PER_S)),
            "max_msgs_per_subject": rng.choice((-1, -1, 1, 8)),
            "discard": rng.choice(("old", "old", "new")),
            "duplicate_window": rng.choice((2, 120)) * NS_PER_S,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        if config["max_age"]:
            config["duplicate_window"] = min(config["duplicate_window"], config["max_age"])
        return config

    def _update_stream(self, at: int, model: StreamModel) -> None:
        config = {**model.config, "max_msgs": self.rng.choice((-1, 15, 40, 80))}
        model.old_limits += [model.config, config]

        def answered(body: dict[str, Any]) -> None:
            self.say(f"updated {model.name}: {body.get('error', 'ok')}")
            if "error" not in body:
                model.config = config

        self.request_api(at, f"STREAM.UPDATE.{model.name}", config, answered)

    def _delete_stream(self, at: int, model: StreamModel) -> None:
        model.deleting = True
        model.exists = None

        def answered(body: dict[str, Any]) -> None:
            self.say(f"deleted {model.name}: {body.get('error', 'ok')}")
            if "error" not in body:
                model.exists = False
                self._forget_stream(model)

        self.say(f"delete {model.name}")
        self.request_api(at, f"STREAM.DELETE.{model.name}", {}, answered)

    def _forget_stream(self, model: StreamModel) -> None:
        if self.streams.get(model.name) is model:
            del self.streams[model.name]
            self.former.append(model)

    def _served(self) -> dict[str, Any]:
        """Return the streams that the process serves."""
        jetstream = self.process.node.jetstream
        assert jetstream is not None
        return jetstream.accounts["$G"].streams

    def _adopt(self) -> None:
        """After a start, determine which requests of unknown outcome took effect."""
        served = self._served()
        for model in list(self.streams.values()):
            there = model.name in served
            if model.exists is True:
                demand(there, f"stream {model.name} is gone")
            elif not there:
                self._forget_stream(model)
                continue
            if model.exists is None and not model.deleting:
                model.adopted_ns = self.moment()
            model.exists, model.deleting = True, False
            self.adopt_limits(model, served[model.name])
            model.latest_ns = max(model.latest_ns, self.now())
            self._adopt_consumers(model, served[model.name])
        back = set(served) - set(self.streams) - set(CONFIGS) - set(BATCH_CONFIGS)
        demand(not back, f"streams are back: {back}")

    def adopt_limits(self, model: StreamModel, stream: Any) -> None:
        """Determine which of the sent updates was the last to take effect."""
        max_msgs = stream.config.max_msgs if stream.config.max_msgs > 0 else -1
        sent = {each["max_msgs"] for each in (model.config, *model.old_limits)}
        demand(max_msgs in sent, f"{model.name} has max_msgs {max_msgs}, which nobody asked for")
        model.config = {**model.config, "max_msgs": max_msgs}

    def _adopt_consumers(self, model: StreamModel, stream: Any) -> None:
        for consumer in list(model.consumers.values()):
            there = consumer.name in stream.consumers
            if consumer.exists is True:
                demand(there, f"consumer {consumer.name} of {model.name} is gone")
            elif not there:
                model.former_consumers.append(model.consumers.pop(consumer.name))
                continue
            if consumer.exists is None and not consumer.deleting:
                consumer.adopted_ns = self.moment()
            consumer.number = min(consumer.number, self.number)
            # the deletion took effect: the stream has released the messages that the consumer needed
            if consumer.deleting:
                consumer.number = self.number
            consumer.exists, consumer.deleting = True, False
            consumer.waiting, consumer.resetting = [], False
        demand(set(stream.consumers) <= set(model.consumers), f"consumers are back: {set(stream.consumers)}")

    def audit(self, restarted: bool = False) -> None:
        """Read all streams and compare them with the model."""
        self.process.run()
        self.process.finish_changes()  # otherwise reports would wait for these changes
        self.collect()
        fail_in, self.disk.fail_in = self.disk.fail_in, None
        self._audit_all(restarted)
        self.disk.fail_in = fail_in

    def _audit_all(self, restarted: bool) -> None:
        served = self._served()
        for model in list(self.streams.values()):
            if model.name in served and model.exists:
                audit_stream(self, model, served[model.name], restarted)
        self.features.audit(served)
        self.batches.audit(served)
        if restarted:
            self.power_lost = False

    # -- messages ------------------------------------------------------------------------------------------

    def _publish(self, at: int, model: StreamModel) -> None:
        rng = self.rng
        size = rng.choice((10, 100, 1000, 1500) if self.big else (10, 60, 200))
        if self.big and rng.random() < 0.02:
            size = 20_000
        self.number += 1
        number = self.number
        payload = (b"%d." % number).ljust(size, b"x")
        publish = Publish(number, f"{model.name}.{rng.choice(TOKENS)}", len(payload), self.now())
        publish.known_last = model.max_seq
        told = [each for each in model.at.values() if each.told_ns and each.subject == publish.subject]
        publish.known_of_subject = max(told, key=lambda each: each.seq, default=None)
        headers = self._headers(model, publish)
        model.publishes[number] = publish

        def answered(frame: Frame) -> None:
            self._published(model, publish, frame)

        if rng.random() < 0.1:
            self._send(at, publish.subject, payload, headers)
        else:
            self._request(at, publish.subject, payload, answered, headers)

    def _headers(self, model: StreamModel, publish: Publish) -> bytes:
        rng = self.rng
        lines = []
        chance = rng.random()
        ids = [each.msg_id for each in model.publishes.values() if each.msg_id]
        if chance < 0.15 and ids:
            publish.msg_id = rng.choice(ids[-8:])
        elif chance < 0.35:
            publish.msg_id = f"id{publish.number}"
        if publish.msg_id:
            lines.append(f"Nats-Msg-Id: {publish.msg_id}")
        chance = rng.random()
        if chance < 0.08:
            publish.expected_seq = max(0, model.max_seq + rng.choice((0, 0, 0, -1, 1)))
            lines.append(f"Nats-Expected-Last-Sequence: {publish.expected_seq}")
        elif chance < 0.16:
            last = max((each.seq for each in model.at.values() if each.subject == publish.subject), default=0)
            publish.expected_subject_seq = max(0, last + rng.choice((0, 0, 0, -1, 1)))
            lines.append(f"Nats-Expected-Last-Subject-Sequence: {publish.expected_subject_seq}")
        elif chance < 0.17:
            publish.rollup = rng.choice(("sub", "sub", "all"))
            lines.append(f"Nats-Rollup: {publish.rollup}")
        return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode() if lines else b""

    def _published(self, model: StreamModel, publish: Publish, frame: Frame) -> None:
        if frame.headers:
            publish.refused = True  # no server received it
            return
        body = json.loads(frame.payload)
        self.say(f"{publish} of {model.name}: {frame.payload.decode()}")
        if model.deleting:
            return
        if "error" not in body:
            if body.get("duplicate"):
                model.duplicated(publish, body["seq"])
            else:
                model.acked(publish, body["seq"], self.now())
            return
        code, text = body["error"]["err_code"], body["error"]["description"]
        if code in SURE_REFUSALS and body["error"]["code"] == 400:
            last = text.rpartition(": ")[2]
            model.refused(publish, code, int(last) if last.isdigit() else None)
        else:
            demand(self.faults or code in SURE_REFUSALS, f"{publish}: {body}")

    def _delete_message(self, at: int, model: StreamModel) -> None:
        rng = self.rng
        if not model.at:
            return
        seq = rng.choice(list(model.at))
        if rng.random() < 0.3:
            seq = max(model.at)
        removal = Removal(model.max_seq, seq=seq)
        model.removals.append(removal)
        erase = rng.random() < 0.5

        def answered(body: dict[str, Any]) -> None:
            self.say(f"deleted {seq} of {model.name}: {body.get('error', 'ok')}")
            if "error" not in body:
                removal.told_ns, removal.done_number = self.moment(), self.number

        self.say(f"delete {seq} of {model.name}, erase {erase}")
        self.request_api(at, f"STREAM.MSG.DELETE.{model.name}", {"seq": seq, "no_erase": not erase}, answered)

    def _purge(self, at: int, model: StreamModel) -> None:
        rng = self.rng
        removal = Removal(model.max_seq)
        body: dict[str, Any] = {}
        if rng.random() < 0.6:
            removal.subject = body["filter"] = f"{model.name}.{rng.choice(TOKENS)}"
        chance = rng.random()
        if chance < 0.3 and model.max_seq:
            removal.below = body["seq"] = rng.randrange(1, model.max_seq + 1)
        elif chance < 0.5:
            removal.keep = body["keep"] = rng.randrange(1, 6)
        model.removals.append(removal)

        def answered(reply: dict[str, Any]) -> None:
            self.say(f"purged {model.name}: {reply.get('error', reply.get('purged'))}")
            if "error" not in reply:
                removal.told_ns, removal.done_number = self.moment(), self.number

        self.say(f"purge {model.name} {body}")
        self.request_api(at, f"STREAM.PURGE.{model.name}", body, answered)

    # -- consumers -----------------------------------------------------------------------------------------

    def _create_consumer(self, at: int, model: StreamModel) -> None:
        rng = self.rng
        name = rng.choice(("c1", "c2"))
        queue = model.config["retention"] == "workqueue"
        if name in model.consumers or (queue and model.consumers):
            return
        subject = "" if queue or rng.random() < 0.6 else f"{model.name}.{rng.choice(TOKENS)}"
        consumer = ConsumerModel(
            name, subject, rng.random() < 0.2 and not queue, rng.choice((-1, -1, -1, 3)) if not queue else -1
        )
        model.consumers[name] = consumer
        config: dict[str, Any] = {
            "durable_name": name,
            "ack_policy": "all" if consumer.ack_all else "explicit",
            "ack_wait": 2 * NS_PER_S,
            "deliver_policy": "all",
            "max_deliver": consumer.max_deliver,
            "max_ack_pending": 1000,
        }
        if subject:
            config["filter_subject"] = subject

        def answered(body: dict[str, Any]) -> None:
            self.say(f"created consumer {name} of {model.name}: {body.get('error', 'ok')}")
            if "error" in body:
                demand(self.faults or model.deleting, f"{name}: {body}")
                consumer.deleting = True
            else:
                consumer.exists, consumer.number = True, self.number

        self.say(f"create consumer {model.name} {config}")
        body = {"stream_name": model.name, "config": config}
        self.request_api(at, f"CONSUMER.CREATE.{model.name}.{name}", body, answered)

    def _delete_consumer(self, at: int, model: StreamModel) -> None:
        there = [consumer for consumer in model.consumers.values() if consumer.exists]
        if not there:
            return
        consumer = self.rng.choice(there)
        consumer.exists, consumer.deleting = None, True

        def answered(body: dict[str, Any]) -> None:
            self.say(f"deleted consumer {consumer.name} of {model.name}: {body.get('error', 'ok')}")
            # If the disk prevents the removal, the consumer may come back; the server logs this.
            gone = "error" not in body and not self.faults
            if gone and model.consumers.get(consumer.name) is consumer:
                model.former_consumers.append(model.consumers.pop(consumer.name))

        self.request_api(at, f"CONSUMER.DELETE.{model.name}.{consumer.name}", {}, answered)

    def _pull(self, at: int, model: StreamModel, batch: int = 0) -> None:
        there = [consumer for consumer in model.consumers.values() if consumer.exists]
        if not there:
            return
        consumer = self.rng.choice(there)
        body: dict[str, Any] = {"batch": batch or self.rng.choice((1, 5, 20))}
        body |= {"no_wait": True} if batch or self.rng.random() < 0.6 else {"expires": NS_PER_S}
        self.request_api(at, f"CONSUMER.MSG.NEXT.{model.name}.{consumer.name}", body, lambda answer: None)

    def _delivered(self, frame: Frame) -> None:
        words = frame.reply.decode().split(".")
        model = self.streams.get(words[2])
        number = frame.payload.partition(b".")[0]
        if model is None or words[3] not in model.consumers:
            return
        consumer = model.consumers[words[3]]
        publish = model.publishes.get(int(number))
        demand(
            publish is not None,
            f"{words[3]} got {frame.payload[:20]!r}, which is of no message of {words[2]}",
        )
        assert publish is not None
        model.see(publish, int(words[5]))
        self.say(f"{consumer.name} of {model.name} got {publish}, delivery {words[4]}")
        consumer.deliver(publish, int(words[4]))
        consumer.waiting.append((frame.reply.decode(), publish))

    def _ack(self, at: int, model: StreamModel) -> None:
        rng = self.rng
        there = [consumer for consumer in model.consumers.values() if consumer.waiting and consumer.exists]
        if not there:
            return
        consumer = rng.choice(there)
        for _ in range(min(len(consumer.waiting), rng.choice((1, 3, 10)))):
            subject, publish = consumer.waiting.pop(rng.randrange(len(consumer.waiting)))
            what = rng.choice((b"+ACK", b"+ACK", b"+ACK", b"", b"-NAK", b"+TERM", b"+WPI", None))
            if what is not None:
                self._send_ack(at, consumer, subject, publish, what)

    def _send_ack(
        self, at: int, consumer: ConsumerModel, subject: str, publish: Publish, what: bytes
    ) -> None:
        covered = [publish.number]
        if what in (b"+ACK", b"", b"+TERM"):
            if consumer.ack_all:
                model = self.streams[subject.split(".")[2]]
                covered = [
                    each.number
                    for each in model.at.values()
                    if each.seq <= publish.seq and consumer.wants(each)
                ]
        else:
            covered = []
        for number in covered:
            consumer.acked[number] = self.moment()
        self.say(f"{consumer.name} {what.decode() or 'ack'} {publish}")
        resets = consumer.resets

        def answered(frame: Frame) -> None:
            if frame.headers or frame.payload or resets != consumer.resets:
                return
            self.say(f"{consumer.name} {what.decode() or 'ack'} {publish} is confirmed")
            for number in covered:
                consumer.confirmed[number] = self.moment()

        if what in (b"+ACK", b"", b"+TERM") and self.rng.random() < 0.5:
            self._request(at, subject, what, answered)
        else:
            self._send(at, subject, what)

    # -- the end -------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Make every consumer deliver all its messages, and acknowledge them."""
        self.process.settle()
        # rounds without a delivery: unacknowledged messages are delivered again only after their ack wait
        idle = 0
        for _ in range(60):
            before = self._deliveries()
            for model in self.streams.values():
                for consumer in model.consumers.values():
                    self._drain_one(model, consumer)
            self.process.advance(2100 * NS_PER_MS)
            self.process.settle()
            self.process.run()
            self.collect()
            idle = idle + 1 if before == self._deliveries() else 0
            if idle == 3:
                break
        self.audit()
        for model in self.streams.values():
            for consumer in model.consumers.values():
                for publish in model.present.values():
                    if consumer.wants(publish) and consumer.exists:
                        done = publish.number in consumer.delivered or publish.number in consumer.acked
                        done = done or publish.seq < consumer.start_seq or bool(model.excuse(publish))
                        demand(done, f"{publish} was never delivered to {consumer.name} of {model.name}")

    def _deliveries(self) -> int:
        return sum(len(each.delivered) for m in self.streams.values() for each in m.consumers.values())

    def _drain_one(self, model: StreamModel, consumer: ConsumerModel) -> None:
        self.request_api(
            0,
            f"CONSUMER.MSG.NEXT.{model.name}.{consumer.name}",
            {"batch": 200, "no_wait": True},
            lambda answer: None,
        )
        self.process.run()
        self.collect()
        for subject, publish in consumer.waiting:
            self._send_ack(0, consumer, subject, publish, b"+ACK")
        consumer.waiting = []
        self.process.run()
        self.process.settle()
        self.collect()
