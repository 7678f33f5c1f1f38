"""Check and repair of streams that are compressed, encrypted, or both, also when the key is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.fsck.store_files import (
    KEY,
    STREAM,
    check,
    cut,
    flipped,
    overwritten,
    removed,
    served,
    start,
    tree,
    unwitnessed,
    without_indexes,
)

from pyjs.cli import main
from pyjs.store.format.outer_header import read_outer_header

ONE, TWO, LAST = "msgs/00000001.seg", "msgs/00000002.seg", "msgs/00000003.seg"
ENCODINGS = ("s2", "chacha", "aes", "s2 and chacha")
ENCRYPTED = pytest.mark.parametrize("encoding", ["chacha", "aes", "s2 and chacha"])
MATRIX = {
    "a byte of the header": flipped(ONE, 40),
    "a byte": flipped(ONE, -300),
    "the middle": flipped(TWO, -500),
    "a sector": overwritten(TWO, 1024, 512, b"\x77"),
    "cut": cut(ONE, 40),
    "a byte of the last segment": flipped(LAST, 3000),
    "the last segment cut": unwitnessed(cut(LAST, 1000)),
    "the metadata in clear": flipped(ONE, 150),
    "an index file": flipped("msgs/00000001.idx", 200),
    "configuration a": flipped("meta.a", 45),
    "both configurations": removed("meta.a", "meta.b"),
    "a consumer's configuration": flipped("consumers.a", 50),
    "a consumer's log": flipped("consumers/first.2/log.1", -3),
    "the duplicate window": flipped("window", 50),
}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return path


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_the_server_left_at_a_stop_is_clean(root: Path, encoding: str) -> None:
    report = check(root, encoding)
    assert [(finding.what, finding.path) for finding in report.all_findings()] == []
    head = read_outer_header((root / STREAM / ONE).read_bytes()[:64], "")
    assert head is not None
    assert (bool(head.codec), bool(head.cipher)) == ("s2" in encoding, encoding != "s2")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", MATRIX)
def test_a_check_changes_nothing_and_tells_what_the_server_will_find(
    name: str, root: Path, encoding: str
) -> None:
    MATRIX[name](root)
    before = tree(root)

    report = check(root, encoding)

    assert tree(root) == before
    found = {stream.name: stream for stream in report.streams}["S"]
    state = served(root, encoding)["S"]
    assert (found.messages, found.bytes, found.first_seq, found.last_seq) == tuple(
        state["state"][field] for field in ("messages", "bytes", "first_seq", "last_seq")
    )
    lost = [seq for first, last in found.lost for seq in range(first, last + 1)]
    assert sorted(lost) == sorted((state["lost"] or (0, [], 0))[1])
    assert report.exit_code() == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", MATRIX)
def test_a_repaired_store_is_clean_and_holds_the_same(name: str, root: Path, encoding: str) -> None:
    MATRIX[name](root)
    expected = served(root, encoding)

    repaired = check(root, encoding, repair=True)
    again = check(root, encoding)

    assert repaired.all_repairs()
    assert [finding.what for finding in again.all_findings() if finding.level != "note"] == []
    assert again.exit_code() == 0
    found = served(root, encoding)
    for stream in (*expected.values(), *found.values()):
        stream.pop("lost")
    assert found == expected


@pytest.mark.parametrize("encoding", ["plain", *ENCODINGS])
def test_a_write_that_a_kill_cut_short_is_no_damage(root: Path, encoding: str, tmp_path: Path) -> None:
    before = (root / STREAM / LAST).stat().st_size if encoding in ("plain", "s2") else 0
    js = start(root, encoding)
    js.publish("s.1", b"y" * 9000)
    killed = without_indexes(shutil.copytree(root, tmp_path / "killed"))
    js.node.stop()
    path = max((killed / STREAM / "msgs").glob("*.seg"))
    os.truncate(path, (before // 4096 + 2) * 4096)

    report = check(killed, encoding)

    cut_short = ("note", "the last write was cut short; it was never acknowledged")
    assert [(each.level, each.what) for each in report.all_findings() if each.path == str(path)] == [
        cut_short
    ]
    assert report.exit_code() == 0
    state = served(killed, encoding)["S"]
    found = {stream.name: stream for stream in report.streams}["S"]
    assert (found.lost, state["lost"]) == ([], None)
    assert (found.messages, found.last_seq) == (state["state"]["messages"], state["state"]["last_seq"])
    repaired = check(killed, encoding, repair=True)
    assert any("is cut to its" in each for each in repaired.all_repairs())
    assert served(killed, encoding)["S"]["state"] == state["state"]


@pytest.mark.parametrize("encoding", ["s2", "s2 and chacha"])
def test_damage_in_a_chunk_is_told_by_its_place_in_the_file(root: Path, encoding: str) -> None:
    at = (root / STREAM / ONE).stat().st_size - 300
    flipped(ONE, at)(root)
    report = check(root, encoding)
    damage = next(each for each in report.all_findings() if each.level == "damage")
    assert 64 <= damage.offset <= at < damage.offset + damage.size <= (root / STREAM / ONE).stat().st_size


@ENCRYPTED
def test_a_segment_rewritten_has_the_form_and_another_nonce(root: Path, encoding: str) -> None:
    path = root / STREAM / ONE
    flipped(ONE, 3000)(root)
    old = read_outer_header(path.read_bytes()[:64], "")
    check(root, encoding, repair=True)
    new = read_outer_header(path.read_bytes()[:64], "")
    assert old is not None
    assert new is not None
    assert new.cipher == old.cipher
    assert new.nonce != old.nonce
    for each in (root / STREAM).rglob("*"):
        assert not each.is_file() or b"xxxxxxxx" not in each.read_bytes()


@ENCRYPTED
def test_without_a_key_the_report_says_what_it_needs(
    root: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert main(["fsck", "--repair", str(root)]) == 2
    assert "to check the rest needs --key-file" in capsys.readouterr().out
    assert tree(root) == before


@ENCRYPTED
def test_without_a_key_a_damaged_envelope_is_damage_and_stays(
    root: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped("meta.b", 80)(root)
    before = tree(root)
    assert main(["fsck", "--repair", str(root)]) == 1
    assert "meta.b at " in capsys.readouterr().out
    assert tree(root) == before


@ENCRYPTED
def test_metadata_in_clear_is_checked_with_and_without_a_key(
    root: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(TWO, 150)(root)
    what = "the metadata in clear after its header is damaged"
    assert [each.what for each in check(root, encoding).all_findings()] == [what]
    assert main(["fsck", str(root)]) == 1
    assert what in capsys.readouterr().out
    check(root, encoding, repair=True)
    assert check(root, encoding).exit_code() == 0


@ENCRYPTED
def test_a_wrong_key_is_told_and_never_shown(
    root: Path, encoding: str, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key_file.write_text("a secret that does not fit\n")
    before = tree(root)
    assert main(["fsck", "--repair", "--key-file", str(key_file), str(root)]) == 2
    shown = capsys.readouterr()
    assert "it is encrypted with another key than that of --key-file" in shown.out
    assert "a secret" not in shown.out + shown.err
    assert tree(root) == before


@ENCRYPTED
def test_the_key_comes_from_a_file_with_the_one_before(
    root: Path, encoding: str, key_file: Path, tmp_path: Path
) -> None:
    assert main(["fsck", "--key-file", str(key_file), str(root)]) == 0
    key_file.write_text(f"a new one\n{KEY}\n")
    assert main(["fsck", f"--key-file={key_file}", str(root)]) == 0
    key_file.write_text("a new one\n")
    (tmp_path / "before").write_text(KEY)
    words = ["--key-file", str(key_file), "--prev-key-file", str(tmp_path / "before")]
    assert main(["fsck", *words, str(root)]) == 0


@pytest.mark.parametrize("text", [b"", b"\nx", b"\xff\xfe"])
@pytest.mark.parametrize("encoding", ["chacha"])
def test_a_key_file_without_a_key_is_refused(root: Path, encoding: str, key_file: Path, text: bytes) -> None:
    key_file.write_bytes(text)
    assert main(["fsck", "--key-file", str(key_file), str(root)]) == 2
