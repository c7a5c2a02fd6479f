"""One runtime process from its start to its end, with the client and the control plugin in it."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge.errors import BridgeError, PeerError, PeerGoneError, RuntimeFailedError
from acp_bridge.runtime.dsh.client import PEER, HarnessClient
from acp_bridge.runtime.dsh.control import Control, Judge
from acp_bridge.runtime.dsh.control_types import Feature, Hello, ModelChoice
from acp_bridge.runtime.dsh.launch import INSTALL, Launch, version_of, version_problem
from acp_bridge.runtime.dsh.process import DshProcess
from acp_bridge.sessions.header import FORMAT_VERSION

if TYPE_CHECKING:
    from acp_bridge.vocabulary import JsonObject

logger = logging.getLogger(__name__)

START_WAIT_S: Final = 60.0
"""How long a start may take: a second on a warm disk; the first one ever unpacks 340 MB."""

SHUTDOWN_WAIT_S: Final = 3.0
"""How long ``shutdown`` may take to close its logs: 0.2 s with a running turn."""

ANSWER_WAIT_S: Final = 2.0
"""How long any answer at all may take of a process that was late: a large log keeps it busy."""

END_WAIT_S: Final = 12.0
"""How long the whole end of a process may take: above its own bounds, which add up to 10 s."""

Flow = Callable[[], Awaitable[None]]


class _PacedProcess:
    """The process as a stream that reads no faster than whoever is told of it (`flow`)."""

    def __init__(self, process: DshProcess, flow: Flow) -> None:
        self._process = process
        self._flow = flow

    async def receive(self) -> bytes:
        await self._flow()
        return await self._process.receive()

    async def send(self, data: bytes) -> None:
        await self._process.send(data)

    async def aclose(self) -> None:
        await self._process.aclose()


class Host:
    """A runtime process. `serve` must run in a task for as long as it lives.

    ``model`` is what sessions use that choose nothing else; ``is_subagent`` as `HarnessClient`
    takes it; ``judge`` as `Control` does. ``prepare`` is given the plugin before its hello, and
    ``learn`` when the process is ready, if it can tell its models.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        model: ModelChoice,
        is_subagent: Callable[[str], bool],
        flow: Flow,
        judge: Judge | None = None,
        prepare: Callable[["Control"], None] = lambda _control: None,
        learn: Callable[["Control"], Awaitable[None]] | None = None,
        start_wait_s: float = START_WAIT_S,
    ) -> None:
        self.launch = launch
        self._model = model
        self._is_subagent = is_subagent
        self._flow = flow
        self._judge = judge
        self._prepare = prepare
        self._learn = learn
        self._start_wait_s = start_wait_s
        self._process: DshProcess | None = None
        self._client: HarnessClient | None = None
        self._control: Control | None = None
        self._hello: Hello | None = None
        self._failure: BridgeError | None = None
        self._greeted = anyio.Event()
        self._initializing = anyio.Lock()
        self._leaving = False
        self.ended = anyio.Event()
        """Set when nothing of it runs any more."""

    @property
    def client(self) -> HarnessClient:
        """The client; after `ready`."""
        assert self._client is not None
        return self._client

    @property
    def control(self) -> Control | None:
        """The control plugin, if this process can cancel and close one session by itself."""
        return self._control

    @property
    def hello(self) -> Hello | None:
        """What the plugin said of itself, if it is there at all; after `ready`."""
        return self._hello

    def can(self, feature: Feature) -> bool:
        """Whether the control plugin is there and has this."""
        return self._control is not None and self._hello is not None and self._hello.has(feature)

    @property
    def last_words(self) -> str:
        """The last lines of its stderr, without secrets."""
        return "" if self._process is None else self._process.last_words

    @property
    def usable(self) -> bool:
        """Whether it starts, or runs and goes on."""
        is_gone = self._client is not None and self._client.gone is not None
        return self._failure is None and not self._leaving and not is_gone

    async def ready(self) -> None:
        """Wait for the start.

        Raises:
            RuntimeFailedError: it failed, or the process has ended since; says why.
        """
        await self._greeted.wait()
        if self._failure is not None:
            raise RuntimeFailedError(self._failure.details)

    async def serve(self) -> None:
        """Run the process to its end. Raises nothing: `ready` does."""
        try:
            process = self._process = await DshProcess.start(self.launch)
        except BridgeError as fault:
            self._failure = fault
            self._greeted.set()
            self.ended.set()
            return
        self._client = HarnessClient(
            _PacedProcess(process, self._flow), is_subagent=self._is_subagent, stray=process.note
        )
        if self._leaving:
            self._hurry()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(process.hear_errors)
                group.start_soon(self._greet)
                await self._client.run()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()
                await self._explain(process)
            self._greeted.set()
            self.ended.set()

    async def set_up(self, cwd: str, model: ModelChoice) -> None:
        """Say what the next session that is opened uses; it must be opened before another asks."""
        params: JsonObject = {"cwd": cwd, "provider": model.provider, "model": model.model}
        if model.effort is not None:
            params["reasoningEffort"] = model.effort
        async with self._initializing:
            await self.client.request("initialize", params)

    async def shut_down(self) -> None:
        """End the process in good order, whatever runs in it, and wait until nothing is left.

        Bounded by some seconds; a turn that runs is closed as aborted.
        """
        self._leaving = True
        if not self._greeted.is_set():
            self._hurry()
        elif self._client is not None and not self.ended.is_set():
            with anyio.move_on_after(SHUTDOWN_WAIT_S):
                try:
                    await self._client.request("shutdown", {})
                except (PeerError, PeerGoneError) as fault:
                    logger.info("shutdown: %s", fault.details)
            self._client.stop("The runtime was shut down.")
        await self.wait_ended()

    async def end_if_hung(self) -> bool:
        """After something took longer than its bound: end the process if it answers nothing at all.

        Whether it was ended. Every session in it then finds it gone, and goes on in a new one.
        """
        if not self.usable:
            return True
        try:
            with anyio.fail_after(ANSWER_WAIT_S):
                await self.client.request("bridge/are_you_there", {})
        except PeerError:
            return False  # it knows no such method, so it is there
        except PeerGoneError:
            return True
        except TimeoutError:
            logger.error("a runtime process hangs, and is ended")  # noqa: TRY400  # no fault here
            assert self._process is not None
            self._process.exit_wait_s = 0
            self._fail(f"{PEER} did not answer any more and was ended.")
            return True
        return False

    async def wait_ended(self) -> None:
        """Wait until nothing of it runs any more; bounded."""
        with anyio.move_on_after(END_WAIT_S) as bound:
            await self.ended.wait()
        if bound.cancelled_caught:
            logger.error("a runtime process does not end")

    def _hurry(self) -> None:
        """End a start that nobody waits for; if there is no process yet, `serve` ends it."""
        if self._process is not None and self._client is not None:
            self._process.exit_wait_s = 0
            self._client.stop("The runtime is not needed any more.")

    async def _greet(self) -> None:
        try:
            with anyio.fail_after(self._start_wait_s):
                await self.set_up(str(self.launch.home), self._model)
                await self._meet_plugin()
        except TimeoutError:
            self._fail(
                f"{PEER} did not answer within {self._start_wait_s:.0f} s of its start and was "
                "stopped: try again; if that does not help, run `acp-bridge doctor`."
            )
        except PeerGoneError:
            return  # `serve` knows why
        except BridgeError as fault:
            self._fail(f"{PEER} could not be set up: {fault.details}")
        else:
            self._greeted.set()
            if self._learn is not None and self._control is not None and self.can("models"):
                await self._learn(self._control)

    async def _meet_plugin(self) -> None:
        control = Control(self.client, judge=self._judge)
        self._prepare(control)
        self._hello = hello = await control.hello()
        if hello is None:
            problem = version_problem(await version_of(self.launch))
            if problem is not None:
                raise RuntimeFailedError(problem)
            logger.warning("the control plugin is not there: sessions get a process each")
            return
        if hello.session_format != FORMAT_VERSION:
            raise RuntimeFailedError(
                f"dsh {hello.runtime} writes log format {hello.session_format}, and this "
                f"acp-bridge knows {FORMAT_VERSION}: run `{INSTALL}`."
            )
        for feature, why in hello.missing.items():
            logger.warning("dsh %s lacks %s: %s", hello.runtime, feature, why)
        if all(hello.has(feature) for feature in ("cancel", "close", "open")):
            self._control = control

    def _fail(self, details: str) -> None:
        self._failure = RuntimeFailedError(details)
        self.client.stop(details)

    async def _explain(self, process: DshProcess) -> None:
        """Say why it is gone: what came first, else how the process ended."""
        code, words = process.exit_code, process.last_words
        how = "was killed" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by signal {-code}"
        details = f"{PEER} {how}" + (f". It said: {words}" if words else "") + "."
        logger.info("%s", details)
        if self._failure is not None:
            return
        if not self._greeted.is_set():
            problem = version_problem(await version_of(self.launch))
            details = f"{details} {problem or 'Run `acp-bridge doctor` to see what is missing.'}"
        self._failure = RuntimeFailedError(details)
