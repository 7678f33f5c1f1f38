from pyjs.base.clock import NS_PER_S
from pyjs.base.log import ListLog
from pyjs.core.faults import KNOWN_MAX, Faults


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_fault_is_logged_with_its_traceback_and_counted() -> None:
    log = ListLog()
    faults = Faults(log)

    faults.report("commit", "a commit of stream 'A > S'", raised("out of luck"), 0)

    assert faults.counts == {"commit": 1}
    level, text = log.lines[0]
    assert level == "ERR"
    assert text.startswith("unexpected failure in a commit of stream 'A > S': Traceback")
    assert "ValueError: out of luck" in text


def test_the_same_fault_is_logged_once_in_ten_seconds() -> None:
    log = ListLog()
    faults = Faults(log)

    for at in range(12):
        faults.report("commit", "a commit", raised("again"), at * NS_PER_S)

    assert faults.counts == {"commit": 12}
    assert len(log.lines) == 2
    assert "a commit (9 more like this since the last report): " in log.lines[1][1]


def test_the_faults_that_are_told_apart_are_bounded() -> None:
    log = ListLog()
    faults = Faults(log)

    for number in range(3 * KNOWN_MAX):
        faults.report(f"kind {number}", "a", ValueError("x"), 0)

    assert len(log.lines) == 3 * KNOWN_MAX
    assert len(faults._logged_at) <= KNOWN_MAX
