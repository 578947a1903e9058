"""MQTT clients: one for sinks, one for sources, which pauses. Imported only when needed: aiomqtt loads slowly."""

from __future__ import annotations

import time
from typing import Any

import aiomqtt


class MqttClient(aiomqtt.Client):
    """Registers no socket with the event loop that was closed in the meantime."""

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        """As aiomqtt's own, but that the socket may be closed by the time the loop comes to it."""
        self._loop.call_soon_threadsafe(self._await_write, sock)

    def _await_write(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.add_writer(sock.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._client.loop_write()
        except Exception as error:
            if not self._disconnected.done():
                self._disconnected.set_exception(error)


class Pausable(MqttClient):
    """Does not read its socket while it is told to pause, and tells whether the broker was ever reached."""

    was_reached = False
    is_paused = False
    _fd = -1

    def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:
        super()._on_socket_open(client, userdata, sock)
        self.was_reached = True
        self._fd = sock.fileno()
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._fd, self._read)  # in place of aiomqtt's own

    def _on_socket_close(self, client: Any, userdata: Any, sock: Any) -> None:
        self._fd = -1
        super()._on_socket_close(client, userdata, sock)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closed)

    def _closed(self) -> None:
        """A broker that closes the connection instead of an answer is not waited for."""
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("the broker has closed the connection"))
            self._connected.exception()  # no task may be waiting any more

    def _read(self) -> None:
        """As aiomqtt's own, but that what TLS has decrypted already is left where it is during a pause."""
        try:
            self._client.loop_read()
            while not self.is_paused and getattr(self._client._sock, "pending", int)() > 0:
                self._client.loop_read()
        except Exception as error:
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def pause(self) -> None:
        if not self.is_paused and self._fd >= 0:
            self.is_paused = True
            self._loop.remove_reader(self._fd)
            self._stay_alive()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            if self._fd >= 0:
                self._loop.add_reader(self._fd, self._read)
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Read what TLS has decrypted already: it makes no socket readable."""
        if not self.is_paused and self._fd >= 0 and getattr(self._client._sock, "pending", int)() > 0:
            self._read()

    def _stay_alive(self) -> None:
        """The broker's answers to pings are not read during a pause: it must not be taken for dead meanwhile."""
        if self.is_paused and self._fd >= 0:
            self._client._last_bytes_received = time.monotonic()
            self._loop.call_later(1.0, self._stay_alive)
