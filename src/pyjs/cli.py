"""The command line: arguments become Options and a running server, or some output and an exit code.

This module handles flags and files, but no sockets: it imports the server only to start it. Lines that tools read
(version, `-t`, errors) begin with the name of nats-server, which this program replaces. The exit code is 0 after
success, 1 after a refusal or a failure, and 2 if the command line is invalid.

Source: behaviour of nats-server 2.15.1, except that the exit code after an unknown flag is 2 (nats-server: 0).
"""

from __future__ import annotations

import os
import sys

from pyjs import __version__
from pyjs.config.errors import ConfigError
from pyjs.config.flags import CommandLine, UsageError, parse_flags, usage
from pyjs.config.load import load_options
from pyjs.config.options import Options
from pyjs.server.system.config_file import read_file

PROGRAM = "nats-server"  # begins every line that tools for nats-server may read
NATS_VERSION = "2.15.1"  # the release whose behaviour is implemented

# The dependencies in pyproject.toml, except pydantic (needed only for declared streams) and those that some platforms
# lack. Most of them are imported long after the start, too late for a clear error message.
PACKAGES = (
    "bcrypt",
    "cramjam",
    "cryptography",
    "httptools",
    "msgpack",
    "orjson",
    "pynacl",
    "websockets",
    "xxhash",
)
MODULES = {"pynacl": "nacl"}  # name of the module, where it differs from that of the package

PID_DIGITS_MAX = 20  # Python refuses to parse thousands of digits

# Signals by the names that --signal accepts.
SIGNALS = {"stop": "SIGKILL", "quit": "SIGINT", "term": "SIGTERM", "reopen": "SIGUSR1", "reload": "SIGHUP"}
SIGNALS["ldm"] = "SIGUSR2"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        line = parse_flags(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        print(f"{error}\n\n{usage('pyjs-server')}", file=sys.stderr)
        return 2
    answer = _answer(line)
    if answer is not None:
        return answer
    try:
        options = load_options(_config_path(line), read_file, os.environ, _option_flags(line))
    except ConfigError as error:
        return _fail(str(error))
    problem = _certificate_problem(options)
    if problem:
        return _fail(problem)
    if line.flags.get("t"):
        return _declared_problem(options) or _report_check(options)
    if line.flags.get("print_config"):
        return _print_config(options)
    for warning in options.warnings.mistakes:
        print(warning, file=sys.stderr)
    missing = missing_packages()
    if missing:
        return _fail(_told(missing))
    if options.workers > 1:
        from pyjs.server.workers import supervisor

        return supervisor.run(options)
    from pyjs.server.command import run

    return run(options)


def _certificate_problem(options: Options) -> str:
    """Return the error in the files of the `tls` block, or "" if there is none."""
    if options.tls.certificates:
        from pyjs.server.tls.context import TlsFailed, read_tls_settings

        try:
            read_tls_settings(options)
        except TlsFailed as error:
            return str(error)
    return ""


def _declared_problem(options: Options) -> int:
    """Print the errors in declared streams, consumers and buckets; return the exit code."""
    if options.declares_assets:
        from pyjs.server.declaring.part import read_declared

        try:
            read_declared(options)
        except ConfigError as error:
            return _fail(str(error))
    return 0


def missing_packages() -> list[str]:
    """Return the required packages that are not installed."""
    # As importlib.util.find_spec does, without the time to import importlib.util.
    return [
        name
        for name in PACKAGES
        if not any(each.find_spec(MODULES.get(name, name), None) for each in sys.meta_path)
    ]


def _told(missing: list[str]) -> str:
    names = " ".join(missing)
    return f"{sys.executable} lacks what the server needs: {names}; install it, as by `pip install {names}`"


def _answer(line: CommandLine) -> int | None:
    """Run a command that needs no server, and return its exit code.

    None is returned if a server must be started.
    """
    word = line.words[0].lower() if line.words else ""
    if line.flags.get("version") or (word == "version" and not line.flags.get("help")):
        print(f"{PROGRAM}: v{NATS_VERSION}\npyjs-server: v{__version__}")
        return 0
    if line.flags.get("help") or word == "help":
        print(usage("pyjs-server"))
        return 0
    if word in COMMANDS:
        return COMMANDS[word](line)
    if word:
        return _fail(f'unrecognized command: "{line.words[0]}"; {_command_fix(line.words[0])}')
    if line.unsupported:
        return _fail(f"{line.unsupported} is not supported yet")
    if line.flags.get("signal"):
        return _send_signal(line)
    if line.flags.get("t") and not line.flags.get("config"):
        return _fail("must specify [-c, --config] option to check configuration file syntax")
    return None


def _command_fix(word: str) -> str:
    """Return the advice that the error for an unknown command gives."""
    from pyjs.config.errors import suggestion

    if word.isdigit():
        return f"write -p {word} for the port"
    if os.path.exists(word) or word.endswith(".conf"):
        return f"write -c {word} for a configuration file"
    commands = (*COMMANDS, "version", "help")
    return suggestion(word, commands, f"the commands are {', '.join(commands)}; flags alone start a server")


def _fsck(line: CommandLine) -> int:
    """Run the command `fsck`, and return its exit code."""
    missing = missing_packages()
    if missing:
        return _fail(_told(missing))
    from pyjs.base.disk import OsDisk
    from pyjs.fsck.command import run
    from pyjs.server.system.clock import OsRng, SystemClock

    return run(line.words[1:], OsDisk(), sys.stdout, sys.stderr, OsRng().randbytes, SystemClock())


def _import(line: CommandLine) -> int:
    """Run the command `import`, and return its exit code."""
    missing = missing_packages()
    if missing:
        return _fail(_told(missing))
    from pyjs.base.disk import OsDisk
    from pyjs.importing.command import Surroundings, run
    from pyjs.server.system.clock import OsRng, SystemClock
    from pyjs.server.system.open_by import holders
    from pyjs.server.system.resources import effective_options

    def load(config: str, store_dir: str) -> Options:
        flags: dict[str, str | int | bool] = {"jetstream": True}
        if store_dir:
            flags["store_dir"] = store_dir
        return effective_options(load_options(config or None, read_file, os.environ, flags))

    world = Surroundings(OsDisk(), SystemClock(), OsRng(), sys.stdout, sys.stderr, load, holders)
    return run(line.words[1:], world)


def _doctor(command: CommandLine) -> int:
    """Check whether this machine can run a server with the flags and the file of the command.

    Returns the exit code of the command.
    """
    words = command.words[1:]
    as_json = "--json" in words
    try:
        line = parse_flags([word for word in words if word != "--json"])
        if line.words:
            raise UsageError(f'unexpected "{line.words[0]}"')
    except UsageError as error:
        print(
            f"doctor: {error}\n\nUsage: pyjs-server doctor [-c FILE] [--json] [options of the server]",
            file=sys.stderr,
        )
        return 2
    texts: dict[str, str] = {}

    def read(path: str) -> str:
        texts[path] = read_file(path)
        return texts[path]

    try:
        options = load_options(_config_path(line), read, os.environ, _option_flags(line))
    except ConfigError as error:
        return _fail(str(error))
    problem = _certificate_problem(options)
    if problem:
        return _fail(problem)
    from pyjs.server.doctor.command import run

    return run(options, missing_packages(), texts, sys.stdout, as_json=as_json)


def _plan(line: CommandLine) -> int:
    """Show the changes that the configuration file of the command would make in the running server.

    Returns the exit code of the command.
    """
    missing = missing_packages()
    if missing:
        return _fail(_told(missing))
    from pyjs.operating import plan
    from pyjs.server.declaring.part import read_declared

    try:
        arguments = plan.parse([*(f"-c={path}" for path in [_config_path(line)] if path), *line.words[1:]])
    except plan.PlanFailed as error:
        print(f"plan: {error}", file=sys.stderr)
        return 1
    try:
        options = load_options(arguments.config, read_file, os.environ, {})
        declared = read_declared(options)
    except ConfigError as error:
        return _fail(str(error))
    return plan.run(arguments, options, declared, sys.stdout, sys.stderr, os.environ)


def _trace(line: CommandLine) -> int:
    """Run the command `trace`, and return its exit code."""
    from pyjs.operating.trace import run

    return run(line.words[1:], os.environ, sys.stdout, sys.stderr)


def _alias(line: CommandLine) -> int:
    """Run the command `alias`, and return its exit code."""
    from pyjs.operating.alias import run

    return run(line.words[1:], os.path.abspath(sys.argv[0]), sys.stdout, sys.stderr)


COMMANDS = {
    "fsck": _fsck,
    "import": _import,
    "doctor": _doctor,
    "plan": _plan,
    "trace": _trace,
    "alias": _alias,
}


def _fail(text: str) -> int:
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return 1


def _config_path(line: CommandLine) -> str | None:
    path = line.flags.get("config")
    return str(path) if path else None


def _option_flags(line: CommandLine) -> dict[str, str | int | bool]:
    """Return the flags that set options of the server, without those that `main` handles itself."""
    acted_upon = ("config", "t", "print_config", "signal", "help", "version")
    return {name: value for name, value in line.flags.items() if name not in acted_upon}


def _print_config(options: Options) -> int:
    """Print every key with its value in effect, as JSON; secrets are replaced with stars."""
    from pyjs.monitor.json_text import pretty_json
    from pyjs.monitor.settings import settings
    from pyjs.server.system.resources import effective_options

    print(pretty_json(settings(effective_options(options))).decode())
    return 0


def _report_check(options: Options) -> int:
    for text in options.warnings.repeated:
        print(f"{PROGRAM}: {text}", file=sys.stderr)
    if options.warnings.mistakes:
        return _fail("\n".join(options.warnings.mistakes))
    text = f"configuration file {options.config_path} is valid ({options.config_digest})"
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return 0


# Signals to a running server


def _send_signal(line: CommandLine) -> int:
    name, *rest = str(line.flags["signal"]).split("=")
    if len(rest) > 1:
        return _fail(f"invalid signal parameters: [{' '.join(rest[1:])}]; write signal=pid")
    if name not in SIGNALS:
        from pyjs.config.errors import suggestion

        fix = suggestion(name, SIGNALS, f"the signals are {', '.join(SIGNALS)}")
        return _fail(f'unknown signal "{name}"; {fix}')
    try:
        pids = _named_pids(rest[0]) if rest and rest[0] else _running_pids(line)
    except (ConfigError, LookupError) as error:
        return _fail(str(error.args[0]))
    import signal

    number = getattr(signal, SIGNALS[name])
    failed = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (OSError, OverflowError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            failed = _fail(f'signal "{name}" {pid}: {reason}')
    return failed


def _named_pids(text: str) -> list[int]:
    """Return the pids that `text` names: a pid, the path of a pid file, or the first digits of pids and then `*`.

    Raises:
        LookupError: no running server has a pid with these digits, or `text` is neither a pid nor a pid file.
    """
    if text.endswith("*") and (text == "*" or text[:-1].isdigit()):
        pids = [pid for pid in _server_pids() if str(pid).startswith(text[:-1])]
        if not pids:
            raise LookupError("no pyjs-server processes running")
        return pids
    try:
        text = read_file(text).strip()
    except OSError:
        pass  # not a file, so it must be a pid
    if not text.isdecimal() or len(text) > PID_DIGITS_MAX or int(text) == 0:
        raise LookupError(f"invalid pid: {text}; give a process id or the path of a pid file")
    return [int(text)]


def _running_pids(line: CommandLine) -> list[int]:
    """Return the pid of this configuration's server, or of the only running server.

    Raises:
        LookupError: no server is running, or several are.
    """
    pid_file = line.flags.get("pid")
    path = _config_path(line)
    if not pid_file and path:
        pid_file = load_options(path, read_file, os.environ, {}).pid_file
    if pid_file and os.path.exists(str(pid_file)):  # os.path, since importing pathlib takes 3 ms
        return _named_pids(str(pid_file))
    pids = _server_pids()
    if not pids:
        raise LookupError("no pyjs-server processes running")
    if len(pids) > 1:
        listed = "\n".join(str(pid) for pid in pids)
        raise LookupError(f"multiple pyjs-server processes running, name one as signal=pid:\n{listed}")
    return pids


def _server_pids() -> list[int]:
    """Return the sorted pids of running servers, except this process.

    Raises:
        LookupError: this system has no /proc.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        raise LookupError("unable to resolve pid, try providing one") from None
    pids = sorted(int(name) for name in names if name.isdigit() and int(name) != os.getpid())
    return [pid for pid in pids if is_server_command(_command_of(pid))]


def _command_of(pid: int) -> list[str]:
    """Return the command line of a process, or [] if it has ended."""
    try:
        return read_file(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    except OSError:
        return []


def is_server_command(command: list[str]) -> bool:
    """Return whether this command line starts a pyjs-server."""
    if not command:
        return False
    names = [word.rpartition("/")[2] for word in command[:3]]
    if names[0] == "pyjs-server":
        return True
    if not names[0].startswith("python") or "--signal" in command or "-sl" in command:
        return False
    return command[1:3] == ["-m", "pyjs"] or names[1:2] in (["pyjs-server"], ["nats-server"])
