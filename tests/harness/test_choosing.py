"""Mode, model and effort: when a choice holds, what the log says of it, how it is found again."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fake_models import FakeCatalog, FakeModel
from harness_rig import FakeClient, Rig, bash, call, rig, script, store

from acp_bridge.errors import InvalidParamsError, StoreFailedError
from acp_bridge.ports import (
    Chunk,
    FailureChunk,
    OptionName,
    PermissionAsk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
)
from acp_bridge.sessions import Header
from acp_bridge.vocabulary import Answer, Draft, OptionsChanged, TurnEnd

pytestmark = pytest.mark.anyio

MODE_ROWS = ["permission/preset", "sandbox/mode", "approval/policy"]


def models(*extra: str) -> FakeCatalog:
    names = ("plain", "deep", *extra)
    return FakeCatalog(*map(FakeModel, names), deep=("low", "high"))


def asked(catalog: FakeCatalog, name: str) -> list[str | None]:
    """The efforts of the requests that a model got."""
    model = catalog.models[f"fake:{name}"]
    assert isinstance(model, FakeModel)
    return [request.effort for request in model.asked]


def chosen(r: Rig) -> tuple[str, str, str | None]:
    options = r.session.options()
    return options.mode, options.model_id, options.effort


def looks(*ids: str) -> list[Chunk | anyio.Event]:
    """An answer of calls that run without a question."""
    calls: list[Chunk | anyio.Event] = [
        ToolCallChunk(n, call_id, "glob", '{"pattern": "*"}') for n, call_id in enumerate(ids)
    ]
    return [*calls, StopChunk("tool_calls")]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("mode", "nope"),
        ("mode", ""),
        ("mode", "Ask first"),
        ("model", "nope"),
        ("model", "plain"),
        ("model", "fake:gone"),
        ("effort", "high"),
        ("effort", "default"),
        ("effort", ""),
    ],
)
@pytest.mark.parametrize("is_stored", [False, True])
async def test_what_cannot_be_chosen_changes_nothing_r067(
    tmp_path: Path, option: OptionName, value: str, is_stored: bool
) -> None:
    async with rig(tmp_path, models()) as r:
        if is_stored:
            await r.prompt()
        before, told = list(r.session.events), len(r.told)
        with pytest.raises(InvalidParamsError) as refused:
            await r.session.choose(option, value)
        assert refused.value.field == "value"
        assert repr(value) in refused.value.details
        assert chosen(r) == ("ask", "fake:plain", None)
        assert list(r.session.events) == before
        assert len(r.told) == told


@pytest.mark.parametrize(
    ("option", "value"), [("mode", "ask"), ("model", "fake:deep"), ("effort", "default")]
)
async def test_choosing_what_is_chosen_writes_and_tells_nothing(
    tmp_path: Path, option: OptionName, value: str
) -> None:
    async with rig(tmp_path, models()) as r:
        await r.session.choose("model", "fake:deep")
        await r.prompt()
        before = len(r.told)
        await r.session.choose(option, value)
        assert len(r.told) == before


async def test_what_is_chosen_before_the_first_prompt_is_kept_and_written_at_birth(
    tmp_path: Path,
) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        await r.session.choose("mode", "accept-edits")
        await r.session.choose("model", "fake:deep")
        await r.session.choose("effort", "high")
        assert r.session.events == []
        assert "s" not in store(tmp_path).session_ids()
        await r.prompt()
        assert [event.type for event in r.rows][:4] == [*MODE_ROWS, "agent/inbox/spliced"]
        assert r.data("sandbox/mode") == [{"mode": "workspace-write"}]
        assert r.data("model/selection") == []
        [header] = r.data("request/header")
        assert header["header"]["config"] == {  # type: ignore[call-overload,index]
            "provider": "fake",
            "model": "deep",
            "reasoningEffort": "high",
        }
    assert asked(catalog, "deep") == ["high"]
    assert asked(catalog, "plain") == []


async def test_a_choice_beside_the_first_prompt_is_not_lost(tmp_path: Path) -> None:
    for n in range(20):
        folder = tmp_path / str(n)
        folder.mkdir()
        async with rig(folder, models()) as r:
            turn = r.admit()
            for _ in range(n % 5):
                await anyio.lowlevel.checkpoint()
            await r.session.choose("mode", "accept-edits")
            await r.ended(turn)
        async with rig(folder, models()) as r:
            assert chosen(r)[0] == "accept-edits"


async def test_choices_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    async with rig(tmp_path, models()) as r:
        await r.session.choose("model", "fake:deep")
        await r.prompt()
        async with anyio.create_task_group() as group:
            group.start_soon(r.session.choose, "effort", "high")
            group.start_soon(r.session.choose, "mode", "full")
            group.start_soon(r.session.choose, "effort", "low")
        assert chosen(r) == ("full", "fake:deep", "low")
    async with rig(tmp_path, models()) as r:
        assert chosen(r) == ("full", "fake:deep", "low")


async def test_a_disk_that_refuses_a_choice_leaves_all_as_it_was(tmp_path: Path) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        await r.prompt()
        r.writer.fail = lambda _drafts: True
        for option, value in (("mode", "full"), ("model", "fake:deep")):
            with pytest.raises(StoreFailedError):
                await r.session.choose(option, value)  # type: ignore[arg-type]
        r.writer.fail = lambda _drafts: False
        assert chosen(r) == ("ask", "fake:plain", None)
        assert not any(isinstance(event, OptionsChanged) for event in r.told)
        await r.prompt()
    assert asked(catalog, "deep") == []


async def test_a_model_brings_its_efforts_and_drops_what_it_cannot(tmp_path: Path) -> None:
    catalog = models("deeper")
    catalog.give("deeper", "high", "highest")
    async with rig(tmp_path, catalog) as r:
        assert r.session.options().efforts == ()
        await r.session.choose("model", "fake:deep")
        assert r.session.options().efforts == ("low", "high")
        await r.session.choose("effort", "high")
        await r.session.choose("model", "fake:deeper")
        assert chosen(r)[2] == "high"
        await r.session.choose("effort", "highest")
        await r.session.choose("model", "fake:deep")
        assert chosen(r)[2] is None
        await r.session.choose("effort", "low")
        await r.session.choose("effort", "default")
        await r.prompt()
    assert asked(catalog, "deep") == [None]


async def test_a_model_chosen_in_a_turn_gets_the_turns_next_request(tmp_path: Path) -> None:
    catalog = models()
    gate = anyio.Event()
    plain = catalog.models["fake:plain"]
    assert isinstance(plain, FakeModel)
    plain.answers = [[TextChunk(0, "On it."), gate, *looks("c")]]
    async with rig(tmp_path, catalog) as r:
        turn = r.admit()
        await r.heard_text("On it.")
        await r.session.choose("model", "fake:deep")
        await r.session.choose("effort", "high")
        gate.set()
        assert await r.ended(turn) == TurnEnd("completed")
        headers = r.data("request/header")
        assert [h["reason"] for h in headers] == ["initial", "change"]
        assert headers[1]["header"]["config"]["model"] == "deep"  # type: ignore[call-overload,index]
        sources = [m["message"]["source"]["model"] for m in r.data("assistant/message")]  # type: ignore[call-overload,index]
        assert sources == ["plain", "deep"]
    assert asked(catalog, "plain") == [None]
    assert asked(catalog, "deep") == ["high"]


async def test_a_retry_asks_the_same_model_in_the_same_way(tmp_path: Path) -> None:
    catalog = models()
    gate = anyio.Event()
    deep = catalog.models["fake:deep"]
    assert isinstance(deep, FakeModel)
    busy = FailureChunk("busy", "SERVER", retryable=True, retry_after_s=0)
    deep.answers = [[TextChunk(0, "Half"), gate, busy]]
    async with rig(tmp_path, catalog) as r:
        await r.session.choose("model", "fake:deep")
        await r.session.choose("effort", "high")
        turn = r.admit()
        await r.heard_text("Half")
        await r.session.choose("effort", "low")
        await r.session.choose("model", "fake:plain")
        gate.set()
        await r.ended(turn)
        await r.prompt()
    assert asked(catalog, "deep") == ["high", "high"]
    assert asked(catalog, "plain") == [None]


async def test_a_request_goes_by_the_last_header_however_choices_fall(tmp_path: Path) -> None:
    catalog = models()
    for model in catalog.models.values():
        assert isinstance(model, FakeModel)
        model.answers = [looks(f"{model.name}{n}") for n in range(10)]
    async with rig(tmp_path, catalog) as r:
        turn = r.admit()
        async with anyio.create_task_group() as group:

            async def switch() -> None:
                for n in range(200):
                    await r.session.choose("model", ("fake:deep", "fake:plain")[n % 2])

            group.start_soon(switch)
            assert await r.ended(turn) == TurnEnd("completed")
            group.cancel_scope.cancel()
        last = ""
        for event in r.session.events:
            assert isinstance(event.data, dict)
            if event.type == "request/header":
                last = event.data["header"]["config"]["model"]  # type: ignore[call-overload,index,assignment]
            if event.type == "assistant/message":
                assert event.data["message"]["source"]["model"] == last  # type: ignore[call-overload,index]


async def test_plan_mode_replaces_the_system_message_and_leaving_it_puts_it_back(
    tmp_path: Path,
) -> None:
    catalog = models()
    plain = catalog.models["fake:plain"]
    assert isinstance(plain, FakeModel)
    gate = anyio.Event()
    plain.answers = [[TextChunk(0, "On it."), gate, *looks("c")]]
    async with rig(tmp_path, catalog) as r:
        turn = r.admit()
        await r.heard_text("On it.")
        await r.session.choose("mode", "plan")
        gate.set()
        await r.ended(turn)
        await r.session.choose("mode", "ask")
        await r.prompt()
        heads = [event for event in r.session.events if event.type == "system/message"]
        assert [head.surface_op for head in heads] == [
            "append",
            (heads[0].seq, heads[0].seq),
            (heads[1].seq, heads[1].seq),
        ]
    systems = [request.system for request in plain.asked]
    assert ["plan mode" in system for system in systems] == [False, True, False]
    assert systems[0] == systems[2]
    assert [len(request.messages) for request in plain.asked] == [1, 3, 5]


async def test_a_mode_chosen_while_calls_wait_for_an_answer_holds_for_those_not_yet_asked(
    tmp_path: Path,
) -> None:
    for mode, results in (
        ("full", ["rejected", "made b", "made c"]),
        ("plan", ["rejected", "plan mode", "plan mode"]),
    ):
        folder = tmp_path / mode
        folder.mkdir()
        model = script(
            [bash(c, f"echo made {c}") for c in "abc"], [{"text": "ok"}], releases=folder
        )
        client = FakeClient()
        async with rig(folder, model, client=client) as r:

            async def reply(_ask: PermissionAsk, r: Rig = r, mode: str = mode) -> Answer:
                await r.session.choose("mode", mode)
                return Answer.REJECT

            client.replier = reply
            assert await r.prompt() == TurnEnd("completed")
            assert len(client.asks) == 1
            for result, says in zip(r.results(), results, strict=True):
                assert says in result


async def test_what_was_chosen_is_what_a_reopened_session_uses_r066(tmp_path: Path) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        await r.prompt()
        await r.session.choose("model", "fake:deep")
        await r.session.choose("effort", "high")
        await r.session.choose("mode", "plan")
    again = models()
    async with rig(tmp_path, again) as r:
        assert chosen(r) == ("plan", "fake:deep", "high")
        assert await r.prompt() == TurnEnd("completed")
        assert "plugin:acp-bridge/notice" not in [event.type for event in r.rows]
    assert asked(again, "deep") == ["high"]
    assert asked(again, "plain") == []
    third = models()
    async with rig(tmp_path, third) as r:  # now by the request header alone
        assert chosen(r) == ("plan", "fake:deep", "high")


@pytest.mark.parametrize(
    ("left", "says", "now"),
    [
        (FakeCatalog(FakeModel("plain")), "fake:deep is not available", ("fake:plain", None)),
        (FakeCatalog(FakeModel("plain"), FakeModel("deep")), "'high'", ("fake:deep", None)),
        (FakeCatalog(FakeModel("deep"), deep=("low",)), "'high'", ("fake:deep", None)),
    ],
    ids=["model gone", "efforts gone", "level gone"],
)
async def test_what_is_gone_falls_back_and_is_said_once_r066(
    tmp_path: Path, left: FakeCatalog, says: str, now: tuple[str, str | None]
) -> None:
    async with rig(tmp_path, models()) as r:
        await r.session.choose("model", "fake:deep")
        await r.session.choose("effort", "high")
        await r.prompt()
    for is_first in (True, False):
        async with rig(tmp_path, left) as r:
            assert chosen(r)[1:] == now
            for _ in range(2):
                assert await r.prompt() == TurnEnd("completed")
            notices = [str(event.data) for event in r.rows if "notice" in event.type]
            assert len(notices) == is_first
            assert all(says in notice for notice in notices)


async def test_a_notice_of_a_model_is_past_when_another_one_is_chosen(tmp_path: Path) -> None:
    async with rig(tmp_path, models("third")) as r:
        await r.session.choose("model", "fake:deep")
        await r.prompt()
    async with rig(tmp_path, FakeCatalog(FakeModel("plain"), FakeModel("third"))) as r:
        await r.session.choose("model", "fake:third")
        await r.prompt()
        assert not [event for event in r.rows if "notice" in event.type]


async def test_a_model_that_the_catalog_no_longer_lists_is_still_shown_as_the_current_one(
    tmp_path: Path,
) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        catalog.available = list  # type: ignore[method-assign]
        options = r.session.options()
        assert [info.model_id for info in options.models] == ["fake:plain"]
        assert options.efforts == ()


async def test_a_log_of_the_real_runtime_goes_on_in_its_mode(tmp_path: Path) -> None:
    writer = store(tmp_path).create(_header(tmp_path))
    writer.append(
        [
            Draft("permission/preset", {"preset": "workspace-write"}),
            Draft("sandbox/mode", {"mode": "workspace-write"}),
            Draft("approval/policy", {"policy": "ask"}),
            Draft("model/selection", {"provider": "deepseek-official", "model": "deepseek-chat"}),
        ]
    )
    writer.close()
    client = FakeClient(Answer.REJECT)
    model = script(
        [call("w", "write", file_path="a.txt", content="a"), bash("b", "touch b.txt")],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    async with rig(tmp_path, model, client=client) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert [ask.tool_name for ask in client.asks] == ["bash"]
        assert len(r.data("permission/preset")) == 1
        [notice] = r.data("plugin:acp-bridge/notice")
        assert "deepseek:deepseek-chat" in str(notice["text"])
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.txt"]


def _header(folder: Path) -> Header:
    return Header("s", 1, str(folder / "work"))
