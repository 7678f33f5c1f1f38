"""The command: exit codes, output, and errors."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.fsck.store_files import STREAM, flipped, tree

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.cli import main
from pyjs.fsck.command import run
from pyjs.store.format.layout import StoreLock, lock_store
from pyjs.store.format.purge_file import Purge, encode_purge


def test_a_clean_store_ends_with_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["fsck", str(root)])

    out = capsys.readouterr().out.splitlines()
    assert code == 0
    assert out[0] == f"Store directory {root}/jetstream"
    assert "$G > S: 86 messages, 132.0 KiB, sequences 4 to 93, 3 segments, 2 consumers" in out
    assert any(line.startswith("  consumer first: delivered up to ") for line in out)
    assert out[-1] == "2 streams, 87 messages, 2 consumers: clean"


@pytest.mark.parametrize("place", ["store", "store/", "store/jetstream"])
def test_the_directory_of_the_configuration_and_the_one_in_it_are_the_same(
    place: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", f"{root.parent}/{place}"]) == 0
    assert f"Store directory {root}/jetstream\n" in capsys.readouterr().out


def test_damage_ends_with_1_and_names_file_place_and_sequence(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped("msgs/00000002.seg", 20_000)(root)

    code = main(["fsck", "--quiet", str(root)])

    out = capsys.readouterr().out.splitlines()
    assert code == 1
    assert out[1].startswith("  DAMAGE $G/streams/S/msgs/00000002.seg at ")
    assert out[1].endswith(" bytes: damaged bytes between records; lost: 54")
    assert out[2] == "  lost: 1 message: 54"
    assert out[-1] == "2 streams, 86 messages, 2 consumers: 1 place damaged, 1 message lost"


def test_a_repair_ends_with_1_and_the_next_check_with_0(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped("msgs/00000002.seg", 20_000)(root)

    repaired = main(["fsck", "--repair", str(root)])
    told = capsys.readouterr().out
    again = main(["fsck", str(root)])

    assert (repaired, again) == (1, 0)
    assert (
        "  repaired: $G/streams/S/msgs/00000002.seg is rewritten with 39 messages; the original is now "
        in told
    )
    assert "  lost for good: 1 message: 54\n" in told
    assert told.splitlines()[-1].endswith(": 1 repair made")


def test_json_says_the_same(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flipped("msgs/00000002.seg", 20_000)(root)

    code = main(["fsck", "--json", str(root)])

    report = json.loads(capsys.readouterr().out)
    stream = {each["name"]: each for each in report["streams"]}["S"]
    damage = stream["findings"][0]
    assert (code, report["exit_code"], report["store_dir"]) == (1, 1, f"{root}/jetstream")
    assert (stream["messages"], stream["lost_msgs"], stream["lost"]) == (85, 1, [[54, 54]])
    assert (damage["level"], damage["first_seq"], damage["repairable"]) == ("damage", 54, True)
    assert damage["path"] == f"{root}/{STREAM}/msgs/00000002.seg"
    assert {each["name"]: each["ack_floor_seq"] for each in stream["consumers"]}.keys() == {"first", "second"}


def test_a_store_that_a_server_works_on_is_not_checked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = OsDisk()
    lock = lock_store(disk, f"{root}/jetstream")

    codes = [main(["fsck", str(root)]), main(["fsck", "--repair", str(root)])]

    lock.release()
    assert codes == [2, 2]
    assert f"pyjs-server fsck: {root}/jetstream is in use: stop the server" in capsys.readouterr().err


def test_a_store_whose_lock_file_was_removed_is_not_checked_while_a_server_works_on_it(root: Path) -> None:
    lock = lock_store(OsDisk(), f"{root}/jetstream")
    (root / "jetstream/.lock").unlink()

    codes = [main(["fsck", str(root)]), main(["fsck", "--repair", str(root)])]

    lock.release()
    assert codes == [2, 2]
    assert main(["fsck", "--quiet", str(root)]) == 0


def test_two_checks_may_run_at_once(root: Path) -> None:
    lock = StoreLock(OsDisk(), f"{root}/jetstream", shared=True)
    assert main(["fsck", "--quiet", str(root)]) == 0
    lock.release()


def test_what_is_no_store_is_refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs/jetstream/$G/streams/S"
    theirs.mkdir(parents=True)
    (theirs / "meta.inf").write_text("{}")

    codes = [
        main(["fsck", str(place)]) for place in (tmp_path / "absent", root / STREAM, tmp_path / "theirs")
    ]

    err = capsys.readouterr().err
    assert codes == [2, 2, 2]
    assert f"{tmp_path}/absent is no directory" in err
    assert f"{root / STREAM} holds no streams: give what store_dir says" in err
    assert "was written by nats-server (there is $G/streams/S/meta.inf)" in err


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--fix", "a"]])
def test_what_cannot_be_read_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", *words]) == 2
    assert "Usage: pyjs-server fsck" in capsys.readouterr().err


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", "--help"]) == 0
    assert "Exit codes: 0 clean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "what"), [(99, "it needs pyjs-server >= 7.3"), (2, "it has format 2, and only 3 is read")]
)
def test_another_format_is_not_checked_and_not_repaired(
    root: Path, capsys: pytest.CaptureFixture[str], version: int, what: str
) -> None:
    import struct

    import xxhash

    path = root / STREAM / "msgs/00000001.seg"
    data = bytearray(path.read_bytes())
    struct.pack_into("<HBB", data, 8, version, 7, 3)
    data[56:64] = struct.pack("<Q", xxhash.xxh64_intdigest(bytes(data[:56])))
    path.write_bytes(data)
    before = tree(root)

    code = main(["fsck", "--repair", str(root)])

    assert code == 2
    assert what in capsys.readouterr().out
    assert tree(root) == before


def test_foreign_files_are_named_and_stay(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [root / STREAM / "notes.txt", root / STREAM / "msgs/x.seg", root / "jetstream/lost+found"]
    for place in places:
        place.write_text("mine")

    code = main(["fsck", "--repair", str(root)])

    out = capsys.readouterr().out
    assert code == 0
    assert [
        f"{place.relative_to(root / 'jetstream')}: not a file of this server" in out for place in places
    ] == [True] * 3
    assert [place.read_text() for place in places] == ["mine"] * 3


def test_what_a_crash_left_is_noted_and_finished_by_a_repair(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(root / STREAM, root / "jetstream/$G/streams/.deleting-0-OLD")
    (root / STREAM / "consumers/new.1").mkdir()
    (root / "jetstream/$G/streams/NEW/msgs").mkdir(parents=True)

    noted = main(["fsck", str(root)])
    told = capsys.readouterr().out
    main(["fsck", "--repair", str(root)])

    assert noted == 0
    assert "  note $G/streams/.deleting-0-OLD: its removal was begun; a start finishes it" in told
    assert sorted(path.name for path in (root / "jetstream/$G/streams").iterdir()) == ["ORIGIN", "S"]
    assert not (root / STREAM / "consumers/new").exists()


def test_a_purge_that_a_kill_interrupted_is_a_note(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / STREAM / "purge").write_bytes(encode_purge(Purge("a.*", 9), None))
    whole = main(["fsck", str(root)]), capsys.readouterr().out
    (root / STREAM / "purge").write_bytes(b"")
    torn = main(["fsck", str(root)]), capsys.readouterr().out

    assert (whole[0], torn[0]) == (0, 0)
    assert "purge: a purge of a.* below 9 was begun; a start finishes it" in whole[1]
    assert "purge: a purge that had not begun" in torn[1]


def test_a_file_that_cannot_be_written_leaves_the_damage_and_says_so(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flipped("msgs/00000002.seg", 20_000)(root)

    def refuse(self: OsDisk, old: str, new: str) -> None:
        raise PermissionError(13, "Permission denied", new)

    monkeypatch.setattr(OsDisk, "rename", refuse)
    code = main(["fsck", "--repair", str(root)])

    assert code == 1
    assert "it could not be repaired: [Errno 13] Permission denied" in capsys.readouterr().out


class Terminal(io.StringIO):
    """A terminal that stores its output."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_shows_how_far_it_is_and_goes_at_the_end(root: Path) -> None:
    terminal = Terminal()

    assert run([str(root)], OsDisk(), io.StringIO(), terminal, os.urandom, VirtualClock()) == 0

    shown = terminal.getvalue().split("\r")
    assert shown[1].startswith(f"[{'-' * 30}]   0 %  0 B of ")
    assert shown[-2].startswith(f"[{'#' * 30}] 100 %  ")
    assert shown[-1] == "\x1b[K"


def test_a_quiet_check_has_no_bar(root: Path) -> None:
    terminal = Terminal()
    assert run(["--quiet", str(root)], OsDisk(), io.StringIO(), terminal, os.urandom, VirtualClock()) == 0
    assert terminal.getvalue() == ""
