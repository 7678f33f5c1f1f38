"""The format `jetstream` compared with Spark's own Kafka source, each with its broker on this machine.

.ci/spark --pyspark 4.2 run benchmarks/spark_kafka.py [--rows 1000000] [--rounds 3] [--rate 50000] [--seconds 10]

Maven downloads the jars of Kafka's broker (one node, KRaft) and of Spark's connector, which exists for pyspark 4.2
but not for 4.3; `pip install confluent-kafka` installs the client that publishes to Kafka. Both brokers get the same
rows: 128 B payloads, 1,000 keys (subjects). Both use the same Spark session (local[2]) in turn:

    batch   count and sum of lengths over all rows, four tasks; processor time of the JVM and its workers, and
            separately that of the broker
    stream  a query whose triggers follow without a pause, while another process publishes `--rate` messages a second:
            the lag, which is the number of rows in the next batch (the newest offsets that the two sources report are
            taken at different times), and processor time per million rows

Ratios are computed within a round. On a shared machine only ratios are meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import spark_client
from plain_client import PlainClient
from servers import ROOT, RunningServer, free_port, our_command

KAFKA, SPARK_KAFKA = "3.9.1", "4.2.0"
TOPIC, TASKS, SUBJECTS = "rows", 4, 1000
PAYLOAD = spark_client.PAYLOAD
TICKS = os.sysconf("SC_CLK_TCK")
STEP_S = 0.05  # pause between two bursts of the paced publisher
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>pyjs</groupId>'
    "<artifactId>jars</artifactId><version>1</version><dependencies>{}</dependencies></project>"
)
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions={tasks}
"""
Figures = dict[str, float]


def jars(name: str, *wanted: tuple[str, str, str]) -> list[Path]:
    """Return jars with all their dependencies, from Maven."""
    folder = ROOT / "build" / "jars" / name
    if not (folder / ".ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM.format("".join(DEPENDENCY.format(*each) for each in wanted)))
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*copy, f"-DoutputDirectory={folder}"], cwd=folder, check=True)
        (folder / ".ready").touch()
    return sorted(folder.glob("*.jar"))


class Kafka:
    """A broker of one node, with its own log folder."""

    def __init__(self, folder: Path) -> None:
        self.port, controller = free_port(), free_port()
        found = jars(
            f"kafka-{KAFKA}",
            ("org.apache.kafka", "kafka_2.13", KAFKA),
            ("org.slf4j", "slf4j-simple", "1.7.36"),
        )
        folder.mkdir()
        file = folder / "server.properties"
        file.write_text(PROPERTIES.format(port=self.port, controller=controller, folder=folder, tasks=TASKS))
        java = ["java", "-Xmx1g", "-cp", os.pathsep.join(map(str, found))]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        made = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(file)]
        subprocess.run([*java, *made], check=True, **quiet)  # type: ignore[call-overload]
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=self._log, stderr=self._log)

    def make_topic(self) -> None:
        """Create the topic; wait until the broker answers."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        made = admin.create_topics([NewTopic(TOPIC, TASKS, 1)], operation_timeout=60)[TOPIC]
        made.result(90)

    def stop(self) -> None:
        """Stop the broker."""
        self.process.kill()
        self.process.wait()
        self._log.close()


# -- publishing -----------------------------------------------------------------------------------------------------


def publish_kafka(port: int, count: int, rate: int) -> None:
    """Publish rows to the topic, `rate` per second or as fast as possible."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 5})
    for low, high in bursts(count, rate):
        for number in range(low, high):
            while True:
                try:
                    producer.produce(TOPIC, PAYLOAD, b"rows.%09d" % (number % SUBJECTS))
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    producer.flush()


def publish_jetstream(port: int, count: int, rate: int) -> None:
    """Publish rows to the stream, with acknowledgements."""
    client = PlainClient(port)
    reply = client.inbox + b".f"
    for low, high in bursts(count, rate):
        for at in range(low, high, 4000):
            numbers = range(at, min(at + 4000, high))
            client.send(b"".join(line(number, reply) for number in numbers))
            for _ in client.frames(len(numbers)):
                pass
    client.close()


def line(number: int, reply: bytes) -> bytes:
    """Return the publish of one row."""
    return b"PUB rows.%09d %b %d\r\n%b\r\n" % (number % SUBJECTS, reply, len(PAYLOAD), PAYLOAD)


def bursts(count: int, rate: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of numbers, paced by the clock."""
    if not rate:
        yield 0, count
        return
    began, done = time.monotonic(), 0
    while done < count:
        high = min(count, int((time.monotonic() - began) * rate))
        if high > done:
            yield done, high
            done = high
        time.sleep(STEP_S)


# -- processor time -------------------------------------------------------------------------------------------------


def cpu_seconds(root: int, but: tuple[int, ...] = ()) -> float:
    """Return the processor seconds of a process and all its descendants, except some process trees."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    total = 0
    for pid, used in ticks.items():
        at = pid
        while at not in (root, 0) and at not in but:
            at = parents.get(at, 0)
        total += used if at == root else 0
    return total / TICKS


# -- reading --------------------------------------------------------------------------------------------------------


class Side:
    """One source with its broker."""

    def __init__(self, name: str, broker: int, other: int, options: dict[str, str], port: int) -> None:
        self.name = name
        self.broker = broker  # its process id
        self.not_spark = (broker, other)  # children of this process that are not part of Spark
        self.options = options
        self.payload = "value" if name == "kafka" else "data"
        self._port = port

    @contextmanager
    def publishing(self, count: int, rate: int) -> Iterator[subprocess.Popen[bytes]]:
        """Publish from another process inside the `with` block."""
        command = [sys.executable, __file__, "--publish", self.name, "--port", str(self._port)]
        process = subprocess.Popen([*command, "--rows", str(count), "--rate", str(rate)])
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def batch(spark: Any, side: Side, rows: int) -> None:
    """Read all rows once."""
    source = spark.read.format(side.name).options(**side.options)
    if side.name == "kafka":
        frame = source.option("startingOffsets", "earliest").load()
    else:
        frame = source.schema("subject string, data binary").load()
    found = frame.selectExpr("count(*)", f"sum(length({side.payload}))").first()
    assert found[0] >= rows, found


def stream(spark: Any, side: Side, rate: int, seconds: float, folder: str) -> Figures:
    """Follow the publisher for `seconds`; return the lag and the processor time."""
    source = spark.readStream.format(side.name).options(**side.options, startingOffsets="latest")
    frame = (source if side.name == "kafka" else source.schema("subject string, data binary")).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
    reports: dict[int, Any] = {}

    def look() -> None:
        for each in query.recentProgress:
            if each["numInputRows"]:
                reports[each["batchId"]] = json.loads(each.json)

    with side.publishing(int(rate * (seconds * 3 + 60)), rate) as publisher:
        others = (*side.not_spark, publisher.pid)
        while len(reports) < 3:  # the first reports include the start of workers
            query.awaitTermination(0.1)
            look()
        skip, begun = max(reports), time.monotonic()
        spark_s, broker_s = cpu_seconds(os.getpid(), others), cpu_seconds(side.broker)
        while time.monotonic() - begun < seconds:
            query.awaitTermination(0.2)
            look()
        used = cpu_seconds(os.getpid(), others) - spark_s, cpu_seconds(side.broker) - broker_s
    query.stop()
    counted = [said for number, said in reports.items() if number > skip]
    rows = sum(said["numInputRows"] for said in counted)
    waited = [said["numInputRows"] for said in counted]
    return {
        "rows_per_s": rows / seconds,
        "batches": len(counted),
        "lag_median": statistics.median(waited),
        "lag_max": max(waited),
        "cpu_s_per_million": used[0] / rows * 1e6,
        "broker_s_per_million": used[1] / rows * 1e6,
    }


def measured(run: Callable[[], None], side: Side, rows: int) -> Figures:
    """Return the processor seconds of a batch per million rows; the caller has run a batch as a warm-up."""
    spark_s, broker_s = cpu_seconds(os.getpid(), side.not_spark), cpu_seconds(side.broker)
    run()
    used = cpu_seconds(os.getpid(), side.not_spark) - spark_s
    return {
        "cpu_s_per_million": used / rows * 1e6,
        "broker_s_per_million": (cpu_seconds(side.broker) - broker_s) / rows * 1e6,
    }


def compare(said: argparse.Namespace, scratch: Path) -> dict[str, list[dict[str, Figures]]]:
    """Return the figures of every round."""
    import pyjs_spark

    found = jars(f"spark-kafka-{SPARK_KAFKA}", ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_KAFKA))
    own = [path for path in found if not path.name.startswith(("hadoop-client", "scala-library", "slf4j"))]
    kafka = Kafka(scratch / "kafka")
    done: dict[str, list[dict[str, Figures]]] = {"batch": [], "stream": []}
    command = our_command(
        [str(ROOT / ".venv/bin/python"), "-m", "pyjs"] if not said.ours else said.ours.split()
    )
    with RunningServer(command) as server:
        try:
            kafka.make_topic()
            client = PlainClient(server.port)
            client.request("$JS.API.STREAM.CREATE.ROWS", {"name": "ROWS", "subjects": ["rows.>"]})
            client.close()
            publish_kafka(kafka.port, said.rows, 0)
            publish_jetstream(server.port, said.rows, 0)
            spark = pyjs_spark.session(
                "kafka", "local[2]",
                **{"spark.jars": ",".join(map(str, own)), "spark.driver.memory": "1g", "spark.log.level": "ERROR"},
            )  # fmt: skip
            where = {
                "servers": f"nats://127.0.0.1:{server.port}",
                "stream": "ROWS",
                "minPartitions": str(TASKS),
            }
            topic = {"kafka.bootstrap.servers": f"127.0.0.1:{kafka.port}", "subscribe": TOPIC}
            sides = [
                Side("jetstream", server.pid, kafka.process.pid, where, server.port),
                Side("kafka", kafka.process.pid, server.pid, topic, kafka.port),
            ]
            for side in sides:
                batch(spark, side, said.rows)
            for number in range(said.rounds):
                turn = sides if number % 2 == 0 else sides[::-1]
                done["batch"].append(
                    {
                        side.name: measured(lambda side=side: batch(spark, side, said.rows), side, said.rows)
                        for side in turn
                    }
                )
            for number in range(said.streams):
                turn = sides if number % 2 == 0 else sides[::-1]
                done["stream"].append(
                    {
                        side.name: stream(
                            spark, side, said.rate, said.seconds, str(scratch / f"{side.name}{number}")
                        )
                        for side in turn
                    }
                )
            spark.stop()
        finally:
            kafka.stop()
    return done


def report(done: dict[str, list[dict[str, Figures]]]) -> str:
    """Return the tables: medians, and the ratio of Kafka's figure to ours in the same round."""
    lines = []
    for name, rounds in done.items():
        for figure in rounds[0]["kafka"] if rounds else ():
            ours, theirs = ([one[side][figure] for one in rounds] for side in ("jetstream", "kafka"))
            ratios = sorted(b / a if a else float("inf") for a, b in zip(ours, theirs, strict=True))
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
            middle = f"{statistics.median(ours):12,.2f} {statistics.median(theirs):12,.2f}"
            lines.append(f"{name:7} {figure:22} {middle}   {spread}")
    return "\n".join([f"{'':30} {'jetstream':>12} {'kafka':>12}   kafka / jetstream", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=2, help="rounds of the stream")
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ours", default="", help="command of our server")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--publish", choices=("kafka", "jetstream"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.publish:
        {"kafka": publish_kafka, "jetstream": publish_jetstream}[said.publish](
            said.port, said.rows, said.rate
        )
        return
    scratch = Path(tempfile.mkdtemp(prefix="spark-kafka-"))
    try:
        done = compare(said, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if said.json:
        said.json.write_text(json.dumps(done, indent=1))
    print(report(done))


if __name__ == "__main__":
    main()
