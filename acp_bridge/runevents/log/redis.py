"""The log in Redis Streams: for several machines, and several processes that serve it.

One stream a run, whose entry ids are the sequences; two scripts keep what must happen as one: an
append with its sequence, its event ids and its announcement, and a change of a run that nobody
else made meanwhile. New events come by one subscription of Redis for the whole process; a reader
that missed something of it reads its streams.

A restart of Redis may lose the newest events (docs/remote.md, "SQLite or Redis"). It also
forgets the scripts, and that is how a restart is noticed: before the scripts are loaded again the
sequence is raised far above anything that was lost, so that no reader's cursor hides a new event.
"""

import hashlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import cache
from typing import Any, Final

import anyio
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError, RedisError

from acp_bridge.errors import BridgeError, ConfigError, RunNotFoundError, StoreFailedError
from acp_bridge.runevents.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, Page, Subscription
from acp_bridge.runevents.log.fanout import Fanout
from acp_bridge.runevents.log.grouping import GroupWriter
from acp_bridge.runevents.log.sqlite import taken
from acp_bridge.runevents.model import EventDraft, RunId, StoredEvent, stored_text
from acp_bridge.runevents.runs import Run, RunState, run_from_text, run_text

logger = logging.getLogger(__name__)

_PREFIX: Final = "acp-bridge:events:"
_RISE: Final = 1_000_000
"""More events than Redis can take in the second that it may lose."""

_TRIES_MAX: Final = 50
"""So many others cannot be faster with one run, unless something is wrong."""

_SOCKET_S: Final = 5.0
_PLACE_S: Final = 20.0
_CONNECTIONS_MAX: Final = 32
"""Calls to Redis at a time; more wait for their place, as long as `_PLACE_S`."""

_QUIET_S: Final = 30.0
_RETRY_S: Final = 0.5
"""How long to wait before a lost subscription is made again."""

_APPEND: Final = f"""
local p = '{_PREFIX}'
if redis.call('GET', p .. 'epoch') ~= ARGV[1] then return {{'reset'}} end
for i = 2, #ARGV, 3 do
  if redis.call('EXISTS', p .. 'run:' .. ARGV[i]) == 0 then return {{'missing', (i - 2) / 3}} end
  local known = redis.call('HGET', p .. 'ids', ARGV[i + 1])
  if known and string.match(known, ' (.*)') ~= ARGV[i] then return {{'taken', (i - 2) / 3}} end
end
local sequences = {{'ok'}}
for i = 2, #ARGV, 3 do
  local known = redis.call('HGET', p .. 'ids', ARGV[i + 1])
  local sequence
  if known then
    sequence = string.match(known, '%d+')
  else
    sequence = string.format('%.0f', redis.call('INCR', p .. 'sequence'))
    redis.call('XADD', p .. 'stream:' .. ARGV[i], sequence .. '-0', 't', ARGV[i + 2])
    redis.call('HSET', p .. 'ids', ARGV[i + 1], sequence .. ' ' .. ARGV[i])
    redis.call('PUBLISH', p .. 'new', sequence .. ' ' .. ARGV[i] .. ' ' .. ARGV[i + 2])
  end
  sequences[#sequences + 1] = sequence
end
return sequences
"""

_CHANGE: Final = f"""
local p, run, was, now = '{_PREFIX}', ARGV[1], ARGV[2], ARGV[3]
if (redis.call('GET', p .. 'run:' .. run) or '') ~= was then return 0 end
redis.call('SET', p .. 'run:' .. run, now)
if was == '' and ARGV[6] ~= '' then redis.call('RPUSH', p .. 'children:' .. ARGV[6], run) end
if ARGV[4] ~= ARGV[5] then
  redis.call('ZREM', p .. 'state:' .. ARGV[4], run)
  redis.call('ZADD', p .. 'state:' .. ARGV[5], redis.call('INCR', p .. 'number'), run)
end
return 1
"""

_PRUNE: Final = f"""
local p, run, before = '{_PREFIX}', ARGV[1], ARGV[2]
local key = p .. 'stream:' .. run
if #redis.call('XRANGE', key, before .. '-0', before .. '-0') == 0 then return 0 end
local found = redis.call('XRANGE', key, '-', '(' .. before .. '-0', 'COUNT', 500)
for _, entry in ipairs(found) do
  redis.call('HDEL', p .. 'ids', string.match(entry[2][2], '"event_id":"([^"]*)"'))
  redis.call('XDEL', key, entry[1])
end
return #found
"""
"""Some at a time: Redis does nothing else meanwhile. The id is looked for, since Redis' JSON reader
refuses half a character, and nothing before it can look like it."""

_SCRIPTS: Final = (_APPEND, _CHANGE, _PRUNE)


class RedisEventLog:
    """An `EventLog` in Redis; made by `open_redis_log`."""

    def __init__(self, redis: Redis) -> None:
        self.epoch = ""
        self._redis = redis
        self._fanout = Fanout()
        # No window: the round trip of one group is the wait of the next.
        self.group: GroupWriter[Sequence[EventDraft], list[int]] = GroupWriter(
            self._commit, window_s=0
        )

    async def start(self) -> None:
        """Find or make the log.

        Raises:
            StoreFailedError: Redis refuses or is not there.
        """
        with _told():
            await self._find_epoch()
            known = await self._redis.script_exists(*map(_sha, _SCRIPTS))
            if not all(known):
                await self._rise()

    async def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """See `EventLog`."""
        return await self.group.submit(drafts)

    async def change_run(self, run_id: RunId, change: Callable[[Run | None], Run]) -> Run:
        """See `EventLog`."""
        for _ in range(_TRIES_MAX):
            with _told():
                text: str | None = await self._redis.get(f"{_PREFIX}run:{run_id}")
            known = None if text is None else run_from_text(text)
            run = change(known)
            if run == known:
                return run
            state = "" if known is None else known.state
            arguments = (run_id, text or "", run_text(run), state, run.state, run.parent_id or "")
            with _told():
                if await self._run_script(_sha(_CHANGE), arguments):
                    return run
        raise StoreFailedError(f"The run {run_id} is changed by too many at once: try again.")

    async def prune(self, run_id: RunId, before: int) -> None:
        """See `EventLog`."""
        with _told():
            while await self._run_script(_sha(_PRUNE), (run_id, str(before))):
                pass

    async def read(self, cursors: Mapping[RunId, int], limit: int = PAGE_EVENTS_MAX) -> Page:
        """See `EventLog`."""
        if not cursors:
            return Page([], is_last=True)
        streams = {f"{_PREFIX}stream:{run_id}": f"{cursor}-0" for run_id, cursor in cursors.items()}
        with _told():
            found = await self._redis.xread(streams, count=limit)
        is_last = True
        events: list[StoredEvent] = []
        for key, entries in found:
            run_id = RunId(key.removeprefix(f"{_PREFIX}stream:"))
            is_last &= len(entries) < limit
            events += (
                StoredEvent(int(entry_id.removesuffix("-0")), run_id, values["t"])
                for entry_id, values in entries
            )
        events.sort(key=lambda event: event.sequence)
        page = _fitting(events[:limit])
        return Page(page, is_last=is_last and len(page) == len(events))

    def subscribe(self, cursors: Mapping[RunId, int]) -> AbstractContextManager[Subscription]:
        """See `EventLog`."""
        return self._fanout.subscribe(cursors, self.read)

    async def last_sequence(self) -> int:
        """See `EventLog`."""
        with _told():
            return int(await self._redis.get(f"{_PREFIX}sequence") or 0)

    async def run(self, run_id: RunId) -> Run | None:
        """See `EventLog`."""
        with _told():
            text = await self._redis.get(f"{_PREFIX}run:{run_id}")
        return None if text is None else run_from_text(text)

    async def children(self, run_id: RunId) -> list[RunId]:
        """See `EventLog`."""
        with _told():
            return [RunId(one) for one in await self._range("lrange", f"children:{run_id}", -1)]

    async def runs_in(self, state: RunState, limit: int) -> list[Run]:
        """See `EventLog`."""
        with _told():
            run_ids = await self._range("zrange", f"state:{state}", limit - 1)
            if not run_ids:
                return []
            texts = await self._redis.mget([f"{_PREFIX}run:{run_id}" for run_id in run_ids])
        return [run_from_text(text) for text in texts if text is not None]

    async def listen(self) -> None:
        """Tell the subscriptions of what is published, until cancelled."""
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(f"{_PREFIX}new")
                    while True:
                        message = await channel.get_message(timeout=_QUIET_S)
                        if message is not None:
                            self._heard(message)
            except (RedisError, OSError) as fault:
                logger.warning("the subscription to Redis was lost: %s", type(fault).__name__)
            await anyio.sleep(_RETRY_S)

    def _heard(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "message":
            sequence, run_id, text = message["data"].split(" ", 2)
            self._fanout.offer([StoredEvent(int(sequence), RunId(run_id), text)])
        else:
            # Subscribed, or subscribed again: what was published before went by.
            self._fanout.fall_behind()

    async def _range(self, command: str, key: str, end: int) -> list[str]:
        found: list[str] = await self._redis.execute_command(command, f"{_PREFIX}{key}", 0, end)
        return found

    async def _commit(
        self, appends: Sequence[Sequence[EventDraft]]
    ) -> Sequence[list[int] | BridgeError]:
        arguments = [
            [text for one in drafts for text in (one.run_id, one.event_id, stored_text(one))]
            for drafts in appends
        ]
        with _told():
            answers = await self._pipe(arguments)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                await self._rise()
                answers = await self._pipe(arguments)  # what was appended before is recognised
        if any(answer == ["reset"] for answer in answers):
            await self._reset()
        return [_outcome(answer, drafts) for answer, drafts in zip(answers, appends, strict=True)]

    async def _pipe(self, arguments: Sequence[Sequence[str]]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for one in arguments:
                pipe.evalsha(_sha(_APPEND), 0, self.epoch, *one)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
        return answers

    async def _run_script(self, sha: str, arguments: Sequence[str]) -> Any:  # noqa: ANN401
        try:
            return await self._redis.evalsha(sha, 0, *arguments)
        except NoScriptError:
            await self._rise()
            return await self._redis.evalsha(sha, 0, *arguments)

    async def _rise(self) -> None:
        """Redis was started again, or is new: leave a gap, then load the scripts; in that order."""
        await self._redis.incrby(f"{_PREFIX}sequence", _RISE)
        for script in _SCRIPTS:
            await self._redis.script_load(script)

    async def _reset(self) -> None:
        """The log that we served is gone; another one takes its place."""
        gone = self.epoch
        with _told():
            await self._find_epoch()
        logger.warning("the event log %s was reset: now %s", gone, self.epoch)
        self._fanout.fail(StoreFailedError("The event log was reset: open the stream again."))

    async def _find_epoch(self) -> None:
        await self._redis.set(f"{_PREFIX}epoch", uuid.uuid4().hex, nx=True)
        self.epoch = str(await self._redis.get(f"{_PREFIX}epoch"))


@cache
def _sha(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


@asynccontextmanager
async def open_redis_log(url: str) -> AsyncIterator[RedisEventLog]:
    """The log in the Redis database of this address.

    Raises:
        ConfigError: the address is none.
        StoreFailedError: Redis refuses or is not there.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS_MAX,
            timeout=_PLACE_S,
            decode_responses=True,
            protocol=2,
            socket_connect_timeout=_SOCKET_S,
            socket_timeout=_SOCKET_S,
        )
    except ValueError as fault:
        raise ConfigError("The address of Redis is none: use redis://HOST:PORT/NUMBER.") from fault
    async with Redis.from_pool(pool) as redis:
        log = RedisEventLog(redis)
        await log.start()
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.listen)
            tasks.start_soon(log.group.run)
            try:
                yield log
            except Exception as error:  # noqa: BLE001  # raised again: a task group would wrap it
                failure = error
            finally:
                log.group.close()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure


def _outcome(answer: Any, drafts: Sequence[EventDraft]) -> list[int] | BridgeError:  # noqa: ANN401
    match answer:
        case ["ok", *sequences]:
            return [int(sequence) for sequence in sequences]
        case ["missing", number]:
            return RunNotFoundError(drafts[number].run_id)
        case ["taken", number]:
            return taken(drafts[number])
        case ["reset"]:
            return StoreFailedError("The event log was reset: register the run again.")
        case _:
            return _refused(answer)


def _fitting(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """As many as go into one page, but one at least."""
    size = 0
    for number, event in enumerate(events, start=1):
        size += len(event.text)
        if size > PAGE_BYTES_MAX:
            return list(events[:number])
    return list(events)


@contextmanager
def _told() -> Iterator[None]:
    """Redis' refusals and lost connections as ours, without their words."""
    try:
        yield
    except (RedisError, OSError) as fault:
        raise _refused(fault) from fault


def _refused(fault: object) -> StoreFailedError:
    return StoreFailedError(
        f"The event log in Redis cannot be used ({type(fault).__name__}): is it up, is its disk "
        "full, is the password right?"
    )
