"""A process without root's rights, to try what is read-only."""

import asyncio
import os


def as_somebody_else(scene):
    """What a scene returns in a process that may not write everywhere, as root may."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            if not os.getuid():
                os.setuid(65534)
            os.write(writer, repr(asyncio.run(scene())).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    found = os.read(reader, 10_000).decode()
    os.close(reader)
    return found
