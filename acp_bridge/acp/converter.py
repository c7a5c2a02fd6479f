"""The one place where wire names and Python types meet; nobody else calls cattrs.

`structure` reads what a client sent, `unstructure` writes what it gets. Rules:

* Unions are data (`types.UNIONS`): the tag picks the class; a tag that we do not know gives
  `Unknown`, which is written back verbatim; without a tag the default member is meant, if any.
* Primitives are strict, integers keep the schema's bounds, open enumerations take any string.
* The schema's leniencies are honoured (`types.LENIENT`): a malformed optional value counts as
  absent, a bad item of some lists is skipped, null counts as absent for others. ``mcpServers``
  alone is forgiven beyond the schema: absent is the same as ``[]`` (R020).
* ``_meta``, ``rawInput``, ``rawOutput`` and whatever else is any JSON pass as the same object.
* Written are required fields, tags, and what differs from its default; in patch types UNSET is
  left out and None is null.

Converters of classes are compiled on first use (about 0.2 ms each); `warm_up` does that for the
types of a first turn.
"""

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

import attrs
import cattrs
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from acp_bridge.acp import reading, types
from acp_bridge.acp.base import IntRange, Unknown, Unset
from acp_bridge.acp.reading import MISSING, Reader, Refusal
from acp_bridge.vocabulary import JsonObject, JsonValue

__all__ = ["structure", "unstructure", "warm_up"]

T = TypeVar("T")
Writer: TypeAlias = Callable[[Any], Any]


@overload
def structure(params: JsonValue, wanted: type[T]) -> T: ...
@overload
def structure(params: JsonValue, wanted: UnionType) -> Any: ...  # noqa: ANN401 - a member
def structure(params: JsonValue, wanted: Any) -> Any:
    """``params`` as a ``wanted``: a class of `types`, or one of its unions.

    Raises:
        InvalidParamsError: they are none; the sentence names the member at fault and what it must
            be. Its ``field`` is a path such as ``cwd`` or ``prompt[1].type``.
    """
    try:
        return _reader(wanted)(params)
    except Refusal as refusal:
        error = refusal.as_error()
    raise error


def unstructure(value: object) -> JsonObject:
    """The JSON object for an instance of a class of `types`."""
    written: JsonObject = _writers[value.__class__](value)
    return written


def warm_up() -> None:
    """Compile what a first turn needs, so that its prompt does not wait for it (about 7 ms)."""
    for wanted in (
        types.NewSessionRequest,
        types.PromptRequest,
        types.CancelNotification,
        types.RequestPermissionResponse,
    ):
        _reader(wanted)
    for members in ("ContentBlock", "ToolCallContent"):
        for member in types.UNIONS[members][1].values():
            _reader(member), _writers[member]
    for written in (
        types.NewSessionResponse,
        types.PromptResponse,
        types.AgentMessageChunk,
        types.AgentThoughtChunk,
        types.ToolCall,
        types.ToolCallUpdate,
        types.ToolCallLocation,
        types.Plan,
        types.PlanEntry,
        types.SessionInfoUpdate,
        types.UsageUpdate,
        types.RequestPermissionRequest,
        types.PermissionToolCall,
        types.PermissionOption,
    ):
        _writers[written]


@cache
def _converter() -> cattrs.Converter:
    return cattrs.Converter(detailed_validation=False)


def _module_of(cls: type[Any]) -> ModuleType:
    """The generated module that a class is from: it holds the tables for it."""
    return sys.modules[cls.__module__]


def wire_name(name: str) -> str:
    """An attribute's name on the wire: the inverse of `generate.snake_case`."""
    if name == "meta":
        return "_meta"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# --- reading -----------------------------------------------------------------------------------

_readers: dict[object, Reader] = {
    str: reading.is_text,
    bool: reading.is_bool,
    int: reading.is_integer,
    float: reading.is_number,
    dict: reading.is_object,
    Any: reading.untouched,
}


def _reader(wanted: Any) -> Reader:  # noqa: ANN401 - any annotation
    """The reader for an annotation, made once."""
    reader = _readers.get(wanted)
    if reader is None:
        reader = _readers[wanted] = _new_reader(wanted)
    return reader


def _new_reader(wanted: Any) -> Reader:  # noqa: ANN401 - any annotation
    if attrs.has(wanted):
        return _class_reader(wanted)
    arguments = get_args(wanted)
    origin = get_origin(wanted)
    if origin is Annotated:
        (bounds,) = (a for a in arguments[1:] if isinstance(a, IntRange))
        return reading.integer_within(bounds)
    if origin is Literal:
        return reading.one_of(arguments)
    if origin is list:
        return reading.array_of(_reader(arguments[0]))
    if origin is dict:
        return reading.map_of(_reader(arguments[1]))
    if origin in (Union, UnionType):
        return _union_reader(arguments)
    raise TypeError(f"no reader for {wanted}")


def _union_reader(arguments: tuple[Any, ...]) -> Reader:
    members = tuple(a for a in arguments if a not in (NoneType, Unset))
    read = _members_reader(members)
    return reading.or_null(read) if NoneType in arguments else read


def _members_reader(members: tuple[Any, ...]) -> Reader:
    if len(members) == 1:
        return _reader(members[0])
    if str in members:  # an open enumeration: its known values are for people
        return reading.is_text
    if get_origin(members[0]) is list:
        items = tuple(get_args(member)[0] for member in members)
        return reading.arrays_of_one(_named_readers(_untagged(items)))
    if Unknown in members:
        tag, by_name, default = _tagged(members)
        return reading.tagged(
            tag, _named_readers(by_name), _lazy_reader(default) if default else None
        )
    return reading.shaped(_named_readers(_untagged(members)))


def _tagged(members: tuple[Any, ...]) -> tuple[str, dict[str, type[Any]], type[Any] | None]:
    """The row of `types.UNIONS` that has exactly these members."""
    wanted = {member for member in members if member is not Unknown}
    rows = _module_of(members[0]).UNIONS.values()
    (row,) = (row for row in rows if set(row[1].values()) == wanted)
    return row  # type: ignore[no-any-return]  # from a module that is not known here by name


def _untagged(members: tuple[Any, ...]) -> dict[str, type[Any]]:
    """The row of `types.UNTAGGED` that has exactly these members."""
    rows = _module_of(members[0]).UNTAGGED.values()
    (row,) = (row for row in rows if set(row.values()) == set(members))
    return row  # type: ignore[no-any-return]  # as above


def _named_readers(members: dict[str, type[Any]]) -> dict[str, Reader]:
    return {name: _lazy_reader(member) for name, member in members.items()}


def _lazy_reader(cls: type[Any]) -> Reader:
    """Compiled when it is first called: most members of a union never come."""

    def read(value: JsonValue) -> Any:  # noqa: ANN401 - an instance of cls
        return _reader(cls)(value)

    return read


def _class_reader(cls: type[Any]) -> Reader:
    lenient: dict[str, str] = _module_of(cls).LENIENT.get(cls.__name__, {})
    fields = {field.name: field for field in attrs.fields(cls)}
    overrides = {
        name: override(
            rename=wire_name(name),
            struct_hook=_field_reader(field, "e" if name == "meta" else lenient.get(name, "")),
        )
        for name, field in fields.items()
    }
    build = make_dict_structure_fn(
        cls,
        _converter(),
        _cattrs_use_linecache=False,
        **overrides,  # type: ignore[arg-type]  # the keywords are fields, not options
    )

    def read(value: JsonValue) -> Any:  # noqa: ANN401 - an instance of cls
        try:
            return build(reading.is_object(value), cls)
        except KeyError as error:  # of `build`: a required field is not there
            (missing,) = (f for f in fields.values() if wire_name(f.name) == error.args[0])
        raise _missing(missing)

    return read


def _missing(field: "attrs.Attribute[Any]") -> Refusal:
    """The refusal for a field that is not there; what it must be is found by refusing nothing."""
    try:
        _reader(field.type)(MISSING)
    except Refusal as refusal:
        return Refusal(refusal.expected, MISSING).under(wire_name(field.name))
    return Refusal("present", MISSING).under(wire_name(field.name))


def _field_reader(field: "attrs.Attribute[Any]", flags: str) -> Callable[[Any, Any], Any]:
    """A field's reader with its leniencies: e default on error, s skip items, n default on null."""
    wire = wire_name(field.name)
    inner = _skipping_reader(field.type) if "s" in flags else _reader(field.type)

    def read(value: Any, _: object) -> Any:  # noqa: ANN401 - as cattrs calls it
        if value is None and "n" in flags:
            return _fallback(field)
        try:
            return inner(value)
        except Refusal as refusal:
            if "e" in flags:
                return _fallback(field)
            raise refusal.under(wire) from None

    return read


def _skipping_reader(annotation: Any) -> Reader:  # noqa: ANN401 - a list, or one or null
    (listed,) = (a for a in (annotation, *get_args(annotation)) if get_origin(a) is list)
    read = reading.array_of(_reader(get_args(listed)[0]), skip_invalid=True)
    return reading.or_null(read) if NoneType in get_args(annotation) else read


def _fallback(field: "attrs.Attribute[Any]") -> Any:  # noqa: ANN401 - what the field may hold
    """A field's default; an empty list for a required one (no other required field is lenient)."""
    if field.default is attrs.NOTHING:
        return []
    factory = getattr(field.default, "factory", None)
    return field.default if factory is None else factory()


# --- writing -----------------------------------------------------------------------------------


class _Writers(dict[type[Any], Writer]):
    """Writers by class, compiled when first asked for."""

    def __missing__(self, cls: type[Any]) -> Writer:
        writer = self[cls] = _class_writer(cls)
        return writer


_writers = _Writers()
_writers[Unknown] = lambda unknown: unknown.raw


def _write(value: Any) -> Any:  # noqa: ANN401 - an instance of a generated class
    return _writers[value.__class__](value)


def _write_all(values: list[Any]) -> list[Any]:
    return [_writers[value.__class__](value) for value in values]


def _class_writer(cls: type[Any]) -> Writer:
    kept: set[str] = _module_of(cls).ALWAYS_WRITTEN.get(cls.__name__, set())
    overrides = {}
    for field in attrs.fields(cls):
        is_tag = isinstance(field.default, str)
        overrides[field.name] = override(
            rename=wire_name(field.name),
            omit_if_default=not (is_tag or field.name in kept),
            unstruct_hook=_field_writer(field.type),
        )
    return make_dict_unstructure_fn(
        cls,
        _converter(),
        _cattrs_omit_if_default=True,
        _cattrs_use_linecache=False,
        **overrides,  # type: ignore[arg-type]  # as above
    )


def _field_writer(annotation: Any) -> Writer:  # noqa: ANN401 - any annotation
    """The writer for a field. A value equal to its default never gets here (but in patches)."""
    if not _holds_class(annotation):
        return identity
    arguments = get_args(annotation)
    is_list = any(get_origin(a) is list for a in (annotation, *arguments))
    writer: Writer = _write_all if is_list else _write
    return reading.or_null(writer) if Unset in arguments else writer


def _holds_class(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return attrs.has(annotation) or any(_holds_class(a) for a in get_args(annotation))
