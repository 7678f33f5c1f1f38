"""The node log with random operations, crashes, power cuts, disk errors and damage: it never returns a wrong state.

PYJS_NODE_LOG_CASES is the number of seeds; the default takes seconds.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.sim.disk import SimDisk
from tests.support.node_logs import Driver, Model, files_of, play, synced, wrong_after

SEEDS = int(os.environ.get("PYJS_NODE_LOG_CASES", "24"))
STRIDE = max(1, 1_200 // SEEDS)  # the distance between damaged bytes
Files = dict[str, bytes]
SECTOR = 512


def logs_of(files: Files) -> list[str]:
    return [name for name in files if name.endswith(".log")]


def closed_log(seed: int) -> tuple[Files, dict[int, Model]]:
    """Return the files of a log that was closed, and its contents."""
    rng = Random(seed)
    driver = Driver(rng, SimDisk(Random(seed + 1)), file_size=rng.choice((4096, 8192)))
    driver.open()
    for _ in range(rng.randrange(20, 150)):
        driver.step()
    if rng.random() < 0.5:
        driver.log.close()
        driver.disk.end_process()
        driver.open()
        for _ in range(rng.randrange(60)):
            driver.step()
    driver.log.close()
    driver.disk.end_process()
    return files_of(driver.disk), driver.models


def flip(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def lose_sector(data: bytearray, rng: Random) -> None:
    at = rng.randrange(len(data) // SECTOR) * SECTOR
    data[at : at + SECTOR] = rng.choice((bytes(SECTOR), rng.randbytes(SECTOR)))


def overwrite(data: bytearray, rng: Random) -> None:
    at = rng.randrange(len(data) - 300)
    data[at : at + 300] = rng.randbytes(300)


def swap(data: bytearray, rng: Random) -> None:
    one, other = (at * 64 for at in rng.sample(range(len(data) // 64), 2))
    data[one : one + 64], data[other : other + 64] = data[other : other + 64], data[one : one + 64]


def cut(data: bytearray, rng: Random) -> None:
    del data[rng.randrange(len(data)) :]


DAMAGES = (flip, lose_sector, overwrite, swap, cut)


def test_what_was_flushed_survives_a_kill_and_what_was_synced_a_power_cut() -> None:
    boots = 0
    for seed in range(SEEDS):
        boots += len(play(seed).boots)
    assert boots > SEEDS * 5


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_closed_log_is_never_a_silent_loss(damage: object) -> None:
    assert callable(damage)
    for seed in range(SEEDS):
        files, model = closed_log(seed)
        rng, logs = Random(seed), logs_of(files)
        for name in rng.sample(logs, min(2, len(logs))):
            data = bytearray(files[name])
            damage(data, rng)
            if len(logs) > 1 or data:
                assert wrong_after({**files, name: bytes(data)}, [model]) == "", (seed, name)


def test_a_removed_file_is_never_a_silent_loss() -> None:
    for seed in range(SEEDS):
        files, model = closed_log(seed)
        for name in logs_of(files):
            rest = {other: data for other, data in files.items() if other != name}
            if logs_of(rest):
                assert wrong_after(rest, [model]) == "", (seed, name)


@pytest.mark.parametrize("seed", range(2))
def test_any_flipped_bit_of_a_closed_log_is_reported_or_harmless(seed: int) -> None:
    files, model = closed_log(seed)
    rng = Random(seed)
    for name in logs_of(files):
        for at in range(seed % STRIDE, len(files[name]), STRIDE):
            data = bytearray(files[name])
            data[at] ^= 1 << rng.randrange(8)
            assert wrong_after({**files, name: bytes(data)}, [model]) == "", (name, at)


def test_any_flipped_bit_of_a_killed_log_leaves_a_state_that_was_durable_or_is_reported() -> None:
    driver = Driver(Random(5), SimDisk(Random(6)))
    driver.open()
    states = []
    for _ in range(60):
        driver.step()
        states.append(driver.history[driver.durable])
    synced(driver.log)
    driver.disk.end_process()
    files = files_of(driver.disk)
    for name in logs_of(files):
        for at in range(0, len(files[name]), STRIDE):
            data = bytearray(files[name])
            data[at] ^= 1 << at % 8
            assert wrong_after({**files, name: bytes(data)}, [*states, driver.models]) == "", (name, at)
