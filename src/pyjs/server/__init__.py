"""The shell: the only package that knows sockets, threads, signals and the clock."""
