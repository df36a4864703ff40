"""The configuration of a running node: what it started with, and on top of it what was changed since.

    LiveConfig ──config──> users: each is told whenever it has changed, and applies it at once
        │
        └──> acquired.toml, behind the loop's back: the latest version is what is written

Who decides about changes is not known here: `adopt` takes whatever was decided, whole. What is not understood (a key of
a newer program, a value that does not go with this node's other settings) is left out, and told.
"""
import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from angarium.core.errors import ConfigError, Rejected
from angarium.node.acquirable import ACQUIRABLE, checked
from angarium.node.acquired import FILE_NAME, Acquired, Setting, read_acquired, write_acquired
from angarium.node.config import LoadedConfig, NodeConfig, value_of, with_values

_log = logging.getLogger("angarium")


class LiveConfig:
    def __init__(
        self, base: NodeConfig, sources: Mapping[str, str], acquired: Acquired, *, path: Path | None,
        origin: str = "changed online, version",
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:  # fmt: skip
        """`path` None: nothing is written. `origin`: what people are told of a value that was changed."""
        self._base = base
        self._sources = sources
        self._path = path
        self._origin = origin
        self._in_thread = in_thread
        self._users: list[Callable[[NodeConfig], None]] = []
        self._saving: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # replaced each time it is set
        self.acquired = self._saved = acquired
        self.failure = ""  # why the file could not be written
        self.config, self.left_out = self._on_top(acquired)
        for text in self.left_out.values():
            _log.warning("setting-left-out: %s", text)

    @property
    def version(self) -> int:
        return self.acquired.version

    @property
    def saved_version(self) -> int:
        return self._saved.version

    def used_by(self, user: Callable[[NodeConfig], None]) -> None:
        self._users.append(user)

    def source(self, key: str) -> str:
        setting = self.acquired.settings.get(key)
        if setting is not None and key not in self.left_out:
            return f"{self._origin} {setting.version}"
        return self._sources.get(key, "default")

    def check(self, key: str, value: object) -> object:
        """Whether it could be set; raises `Rejected`."""
        return checked(self.config, key, value)

    # -- changing ------------------------------------------------------------------------------------------

    def adopt(self, acquired: Acquired) -> None:
        """From now on; written soon."""
        if acquired == self.acquired:
            return
        before, self.acquired = self.config, acquired
        self.config, self.left_out = self._on_top(acquired)
        for key in ACQUIRABLE:
            old, new = value_of(before, key), value_of(self.config, key)
            if old != new:
                _log.info("configuration-changed: %s = %r, it was %r; version %d", key, new, old, acquired.version)
        for text in self.left_out.values():
            _log.warning("setting-left-out: %s", text)
        for user in self._users:
            user(self.config)
        if self._path is not None and self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save(self._path))
        self._tell()

    def _on_top(self, acquired: Acquired) -> tuple[NodeConfig, dict[str, str]]:
        config, left_out = self._base, dict[str, str]()
        for key, setting in acquired.settings.items():
            try:
                config = with_values(config, {key: checked(config, key, setting.value)})
            except (ConfigError, Rejected) as error:
                left_out[key] = f"{key} = {setting.value!r}: {error}"
        return config, left_out

    async def _save(self, path: Path) -> None:
        while self._saved is not self.acquired:
            acquired, self.failure = self.acquired, ""
            try:
                await self._in_thread(write_acquired, path, acquired)
                self._saved = acquired
            except OSError as error:
                self.failure = f"{path}: {error.strerror or error}"
                _log.error("configuration-unsaved: %s; what was changed is lost when this node stops", self.failure)
                break
        self._saving = None
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def settled(self, version: int, timeout_s: float) -> None:
        """Until that version counts here, and is on disk; or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (self.version < version or (self._saving is not None and self.saved_version < version)) and (
            left_s := deadline - loop.time()
        ) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return


def open_live_config(base: NodeConfig, sources: Mapping[str, str]) -> LiveConfig:
    """With what the data directory has; raises ConfigError."""
    path = Path(base.node.data) / FILE_NAME
    origin = "cluster version" if base.cluster.name else "changed online, version"
    return LiveConfig(base, sources, read_acquired(path), path=path, origin=origin)


def settings_at_start(loaded: LoadedConfig) -> LoadedConfig:
    """What a node would have if it started now, and where each value comes from."""
    live = open_live_config(loaded.config, loaded.sources)
    return LoadedConfig(live.config, {**loaded.sources, **{key: live.source(key) for key in live.acquired.settings}})


def with_setting(acquired: Acquired, key: str, value: object | None) -> Acquired:
    """One change further; None: as it was at the start."""
    version = acquired.version + 1
    settings = {name: setting for name, setting in acquired.settings.items() if name != key}
    if value is not None:
        settings[key] = Setting(value, version)
    return Acquired(version, settings)
