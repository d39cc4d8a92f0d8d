"""The OpenAPI page, made from the same values that requests are read into and answers are written from."""

from __future__ import annotations

from typing import Any

from glidepath import _wire
from glidepath._version import VERSION
from glidepath.apps.server.openai_requests import ChatBody, ConversationBody, ResponsesBody
from glidepath.apps.server.shapes import (
    AgentInfo,
    BatchAnswer,
    BatchBody,
    BatchItem,
    BudgetNode,
    DecideBody,
    DoneAnswer,
    EvalCard,
    EvalDetail,
    ForkBody,
    KillBody,
    LimitsBody,
    PendingItem,
    ReasonBody,
    RunCard,
    RunDetail,
    SettleBody,
    ShownMessage,
    Span,
    StartBody,
    SteerBody,
    UnlockBody,
    UsagePoint,
)

_KINDS = (
    AgentInfo,
    BatchAnswer,
    BatchBody,
    BatchItem,
    BudgetNode,
    UsagePoint,
    ChatBody,
    ConversationBody,
    DecideBody,
    DoneAnswer,
    EvalCard,
    EvalDetail,
    ForkBody,
    KillBody,
    LimitsBody,
    PendingItem,
    ReasonBody,
    ResponsesBody,
    RunCard,
    RunDetail,
    SettleBody,
    ShownMessage,
    Span,
    StartBody,
    SteerBody,
    UnlockBody,
)
_TEXT, _WHOLE = {"type": "string"}, {"type": "integer", "minimum": 0}
_ANY: dict[str, Any] = {}
_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "a run's id, or a session's: then its latest run",
    "schema": {"type": "string", "minLength": 1},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": _TEXT, "message": _TEXT},
        }
    },
}
_AGUI = {
    "type": "object",
    "required": ["threadId", "runId", "messages"],
    "properties": {
        "threadId": _TEXT,
        "runId": _TEXT,
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "role"],
                "properties": {
                    "id": _TEXT,
                    "role": {"enum": ["user", "assistant", "system", "developer", "tool"]},
                    "content": _TEXT,
                },
            },
        },
        "resume": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["interruptId", "status"],
                "properties": {"interruptId": _TEXT, "status": {"enum": ["resolved", "cancelled"]}, "payload": _ANY},
            },
        },
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": _TEXT, "description": _TEXT, "parameters": _ANY},
            },
        },
        "forwardedProps": {"type": "object", "properties": {"agent": _TEXT}},
    },
}
_READS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/api/info": ("What this server is, and which agents it has", {}, {"agents": ["AgentInfo"]}),
    "/api/runs": (
        "Runs, the newest first",
        {
            "state": _TEXT,
            "outcome": _TEXT,
            "tag": _TEXT,
            "q": _TEXT,
            "text": _TEXT,
            "since": {"type": "number"},
            "until": {"type": "number"},
            "agent": _TEXT,
            "cursor": _TEXT,
            "limit": _WHOLE,
        },
        {"runs": ["RunCard"], "cursor": _ANY},
    ),
    "/api/runs/{id}/messages": (
        "A page of the transcript",
        {"after": _WHOLE, "limit": _WHOLE},
        {"messages": ["ShownMessage"], "total": _WHOLE},
    ),
    "/api/runs/{id}/journal": (
        "A page of the journal",
        {"after": _WHOLE, "limit": _WHOLE},
        {"records": _ANY, "total": _WHOLE},
    ),
    "/api/runs/{id}/timeline": (
        "What took how long: model calls, tools, waits and children, in order or the longest first",
        {"after": _WHOLE, "limit": _WHOLE, "order": _TEXT},
        {"spans": ["Span"], "total": _WHOLE, "seconds": _ANY},
    ),
    "/api/runs/{id}/burn": ("What a run and its children had used, over time", {}, {"points": ["UsagePoint"]}),
    "/api/runs/{id}/request": (
        "What a model was asked in the call that began at this time",
        {"at": {"type": "number"}},
        {"model": _TEXT, "system": _TEXT, "tools": _ANY, "messages": ["ShownMessage"], "note": _TEXT},
    ),
    "/api/runs/{id}/at": ("The run as it stood after a turn", {"turn": _WHOLE}, {}),
    "/api/evals": ("The evaluations in the store", {}, {"evals": ["EvalCard"]}),
    "/api/approvals": ("Calls that wait for a person", {}, {"approvals": ["PendingItem"]}),
    "/api/budgets": ("Every tree of budgets", {}, {"roots": ["BudgetNode"]}),
    "/api/webhooks": ("The webhooks, and the latest deliveries", {}, {"webhooks": _ANY, "deliveries": _ANY}),
    "/api/fleet": ("Workers, queues, breakers, rates, the kill switch", {}, {"workers": _ANY, "kill": _ANY}),
}
_ACTS = {
    "land": ("ReasonBody", "Ask the run to deliver what it has"),
    "stop": ("ReasonBody", "Stop the run without another model call"),
    "steer": ("SteerBody", "Tell the model something after the turn it is in"),
    "decide": ("DecideBody", "Approve, deny, edit or answer a call that waits"),
    "resume": ("ReasonBody", "Continue a run that was lost, paused, stopped or limited"),
    "fork": ("ForkBody", "A new session from a turn of this one"),
    "limits": ("LimitsBody", "Continue under other limits"),
    "settle": ("SettleBody", "Settle a call whose outcome is unknown"),
}
_BATCH = {
    "land": "Ask many runs to deliver what they have",
    "stop": "Stop many runs without another model call",
    "resume": "Continue many runs",
}


def openapi_page(prefix: str = "") -> dict[str, Any]:
    """OpenAPI 3.1 of every path, those of the doors included."""
    paths: dict[str, Any] = {}
    for path, (summary, query, fields) in _READS.items():
        paths[path] = {"get": _read(summary, path, query, _object(fields))}
    paths["/api/runs/{id}"] = {"get": _read("All about one run", "/{id}", {}, _ref("RunDetail"))}
    report = _read("The report of an evaluation", "", {"after": _WHOLE, "limit": _WHOLE}, _ref("EvalDetail"))
    named = {**_ID, "description": "the name of an evaluation"}
    paths["/api/evals/{id}"] = {"get": {**report, "parameters": [named, *report["parameters"]]}}
    paths["/api/runs"]["post"] = _act(
        "Start a run", "StartBody", _object({"run_id": _TEXT, "session_id": _TEXT}), status="201"
    )
    paths["/api/runs/{id}/events"] = {"get": _events()}
    paths["/api/feed"] = {"get": _stream("Cards that change, as server-sent events")}
    for verb, (body, summary) in _ACTS.items():
        paths[f"/api/runs/{{id}}/{verb}"] = {"post": _act(summary, body, _ref("DoneAnswer"), parameters=[_ID])}
    for verb, summary in _BATCH.items():
        paths[f"/api/batch/{verb}"] = {"post": _act(summary, "BatchBody", _ref("BatchAnswer"))}
    unlock = _act("The token, for a one-time code", "UnlockBody", _object({"token": _TEXT}))
    paths["/api/unlock"] = {"post": {**unlock, "security": []}}
    paths["/api/kill"] = {"post": _act("Throw a kill switch, or release it", "KillBody", _ref("DoneAnswer"))}
    for path in ("/healthz", "/readyz"):
        paths[path] = {"get": {**_read(f"{path[1:]}: a health check for the operator", "", {}, _ANY), "security": []}}
    paths["/metrics"] = {"get": _read("Figures for Prometheus", "", {}, _TEXT, "text/plain")}
    paths["/openapi.json"] = {"get": _read("This page", "", {}, _ANY)}
    paths |= _describe_protocol_paths()
    return {
        "openapi": "3.1.0",
        "info": {"title": "glidepath server", "version": VERSION},
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **_wire.schemas_of(_KINDS, "#/components/schemas/{name}"),
                "Error": _ERROR,
                "RunAgentInput": _AGUI,
            },
        },
    }


def _describe_protocol_paths() -> dict[str, Any]:
    """The paths for front ends that speak another protocol, which says what is in their answers."""
    named = [{**_ID, "name": "agent", "description": "an agent's name"}]
    response = [{**_ID, "description": "a response's id"}]
    paths: dict[str, Any] = {
        "/v1/models": {"get": _read("The agents, as models", "", {}, _object({"object": _TEXT, "data": _ANY}))},
        "/v1/models/{id}": {"get": _read("One agent, as a model", "/{id}", {}, _object({"id": _TEXT}))},
        "/v1/conversations": {"post": _act("A name for a conversation that begins", "ConversationBody", _ANY)},
        "/v1/responses": {"post": _act("Start a run, as OpenAI's Responses API", "ResponsesBody", _ANY)},
        "/v1/responses/{id}": {"get": _read("The state of a response", "/{id}", {}, _object({"id": _TEXT}))},
        "/v1/responses/{id}/cancel": {"post": _act("Stop the run of a response", None, _ANY, parameters=response)},
        "/v1/chat/completions": {"post": _act("Start a run, as OpenAI's chat completions", "ChatBody", _ANY)},
        "/agui": {"post": _act("Start or resume a run, as AG-UI", "RunAgentInput", _TEXT)},
        "/agui/{agent}": {"post": _act("The same with an agent's name", "RunAgentInput", _TEXT, parameters=named)},
    }
    rpc = _act("One message of the Model Context Protocol", None, _ANY)
    ended = _read("End a session of the Model Context Protocol", "", {}, _ANY)
    paths["/mcp"] = {"get": _stream("What an MCP server tells its client"), "post": rpc, "delete": ended}
    for path in ("/v1/responses", "/v1/chat/completions"):
        paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"] = {"schema": _TEXT}
    for path in ("/agui", "/agui/{agent}"):
        paths[path]["post"]["responses"]["200"]["content"] = {"text/event-stream": {"schema": _TEXT}}
    return paths


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: {"type": "array", "items": _ref(kind[0])} if isinstance(kind, list) else kind
        for name, kind in fields.items()
    }
    return {"type": "object", "properties": shown, "required": sorted(shown)}


def _responses(schema: dict[str, Any], status: str = "200", kind: str = "application/json") -> dict[str, Any]:
    return {
        status: {"description": "done", "content": {kind: {"schema": schema}}},
        "4XX": {
            "description": "refused, and nothing was changed",
            "content": {"application/json": {"schema": _ref("Error")}},
        },
        "503": {
            "description": "the store cannot be reached",
            "content": {"application/json": {"schema": _ref("Error")}},
        },
    }


def _read(
    summary: str, path: str, query: dict[str, Any], schema: dict[str, Any], kind: str = "application/json"
) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [_ID] if "{id}" in path else []
    parameters += [{"name": name, "in": "query", "schema": kind} for name, kind in query.items()]
    return {"summary": summary, "parameters": parameters, "responses": _responses(schema, kind=kind)}


def _act(
    summary: str, body: str | None, schema: dict[str, Any], *, status: str = "200", parameters: list[Any] | None = None
) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"} if body is None else _ref(body)}}
    return {
        "summary": summary,
        "parameters": parameters or [],
        "requestBody": {"required": body is not None, "content": content},
        "responses": _responses(schema, status),
    }


def _stream(summary: str) -> dict[str, Any]:
    return {"summary": summary, "parameters": [], "responses": _responses(_TEXT, kind="text/event-stream")}


def _events() -> dict[str, Any]:
    query = {"after": _WHOLE, "before": _WHOLE, "limit": _WHOLE, "kind": _TEXT}
    summary = "Events as they come, or with Accept: application/json (or limit, before, kind) a page of them"
    fields = {"events": _ANY, "first": _WHOLE, "last": _WHOLE, "total": _WHOLE}
    page = _read(summary, "/{id}", query, _object(fields))
    page["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": _TEXT})
    page["responses"]["200"]["content"]["text/event-stream"] = {"schema": _TEXT}
    return page
