"""Start the server on this machine, open the page, and end everything with Ctrl-C."""

import logging
import socket
import webbrowser
from types import FrameType

from sparsetoken.validation import ParameterError

__all__ = ["DEFAULT_PORT", "serve"]

DEFAULT_PORT = 8719
HOST = "127.0.0.1"
_HTTP = 80


def serve(port: int | None, open_browser: bool, address: str = "") -> None:
    """Serve the page until Ctrl-C.

    Parameters
    ----------
    port : int or None
        None takes the default, or any free one if that is taken.
    address : str
        A state to begin with, as the part of an address after its #.
    """
    import uvicorn

    from sparsetoken.explorer.server import make_app

    listening = _listen(port)
    port = listening.getsockname()[1]
    hosts = frozenset(_hosts(port))
    url = f"http://{HOST}:{port}/" + (f"#{address}" if address else "")
    print(f"The explorer is at {url}  (Ctrl-C ends it)", flush=True)
    if open_browser:
        webbrowser.open(url)
    config = uvicorn.Config(
        make_app(hosts, prepare=True),
        log_level="warning",
        ws_max_size=65_536,
        timeout_graceful_shutdown=1,
        server_header=False,
    )

    class Server(uvicorn.Server):
        """Ends quietly: that something was still running is what the user wanted to end."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            super().handle_exit(sig, frame)

    Server(config).run(sockets=[listening])


def _hosts(port: int) -> list[str]:
    """Return under which names a browser asks for the page; it leaves out the port of HTTP itself."""
    names = [HOST, "localhost"]
    return [f"{name}:{port}" for name in names] + (names if port == _HTTP else [])


def _listen(port: int | None) -> socket.socket:
    wanted = DEFAULT_PORT if port is None else port
    for candidate in (wanted, 0):
        # Only with its protocol named does asyncio send small messages at once: else each waits for
        # the last one to be acknowledged, 40 ms.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, candidate))
            # From now on a browser that is faster than the server waits for it.
            listening.listen(128)
        except (OSError, OverflowError) as error:
            listening.close()
            if port is not None:
                reason = getattr(error, "strerror", None) or str(error)
                raise ParameterError("port", port, f"a free port ({reason})") from None
        else:
            return listening
    raise ParameterError("port", port, "a free port")
