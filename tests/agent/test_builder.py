"""The builder: every setting is a method, what guards adds up, and nothing that was said is lost."""

import inspect
import re

import pytest
from tests.setting_samples import filled_in

from glidepath import (
    Agent,
    AgentBuilder,
    AgentFile,
    BuilderError,
    ConfigurationError,
    ExecutionMode,
    GuardrailsConfig,
    Limits,
    LoopConfig,
    LoopOutcome,
    MaxTokensRecovery,
    Plugin,
    ProtocolPolicy,
    ResourceConstraint,
    ResourceValidation,
    Rules,
    Skill,
    Texts,
    tool,
)
from glidepath.agent import FIELDS, Setters
from glidepath.events import RunEnded, StreamChunk
from glidepath.models import WebSearch
from glidepath.sessions import MemoryStore
from glidepath.spi import HOOKS, AfterDecision, Block
from glidepath.testing import ScriptedModel, call, say, virtual
from glidepath.tools import ToolSource
from glidepath.values import Passed, settings_of

MODEL = ScriptedModel([])


@tool
async def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


@tool(terminal=True)
async def deliver() -> str:
    """Deliver."""
    return "delivered"


class Free(ResourceConstraint):
    async def validate(self, context):
        return ResourceValidation.ok()


class Rescue:
    name = "rescue"

    def recover(self, stop):
        return None

    def reset(self):
        return None


class Guard(Plugin):
    def before_tool_call(self, context):
        return None


class Watch(Plugin):
    def event_observer(self, event):
        return None


CONSTRAINT, GUARD, POLICY = Free(), Guard(), ProtocolPolicy()
SOURCE = ToolSource()
SOURCE.name = "shelf"
FILE = AgentFile(name="reviewer", description="d", prompt="p")
NAMED = {  # for a field a value that is not the default; the others follow from what they declare
    "model": MODEL,
    "tools": (look, deliver),
    "tool_sources": (SOURCE,),
    "hosted_tools": (WebSearch(),),
    "reasoning": "low",
    "skills": (Skill(name="pdf", description="d", instructions="i", for_model=False),),  # else it brings tools along
    "agents": (FILE,),
    "limits": Limits(max_iterations=7),
    "guardrails": GuardrailsConfig(max_error_streak=9),
    "texts": Texts(landing="Land."),
    "constraints": (CONSTRAINT,),
    "guards": (Rescue(),),
    "replace_defaults": True,
    "plugins": (GUARD,),
    "store": MemoryStore(),
    "event_sink": print,
    "default_execution_mode": ExecutionMode.SEQUENTIAL,
    "max_output_tokens": 900,
    "tool_choice": "required",
    "stop_sequences": ("END",),
    "extras": {"seed": 1},
    "max_output_tokens_recovery": MaxTokensRecovery.doubling(),
    "plain_text_terminal_fallback_tool": "deliver",
    "plain_text_terminal_fallback_eager": True,
    "plain_text_terminal_fallback_eager_nudge": True,
    "graceful_turn_limit_message_provider": str,
    "graceful_turn_limit_grace_provider": int,
    "landing": "steer",
    "approvals": Rules(deny=["pay"]),
    "token_estimator": type("E", (), {"estimate": staticmethod(len)})(),
    "protocol_policy": POLICY,
    "context_window": 9_000,
    "context_strategy": "none",
    "prices": {"scripted": ("1", "2")},
    "unpriced": "estimate:scripted",
    "min_output_tokens": 64,
    "max_retries": 1,
    "fallback_models": (ScriptedModel([], name="second"),),
    "output_validators": (repr,),
    "handoffs": ("another agent",),
    "output_type": dict[str, int],
    "deps_type": dict,
    "deps_factory": dict,
    "agent_name": "scout",
}
OTHER = filled_in(LoopConfig, NAMED)
LIMITS = filled_in(Limits, {"max_cost": "0.5", "timeout": 60.0, "max_tokens": 90_000, "landing_tokens": 500})
GUARDRAILS = filled_in(GuardrailsConfig, {"reserve_cost_fraction": "0.2"})


# --- one method for every setting -------------------------------------------------------------------------------


def public(kind):
    return {name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_the_methods_are_the_fields_of_the_configuration_of_limits_and_of_guardrails_and_the_hooks():
    settings = [*FIELDS, *Limits.__struct_fields__, *GuardrailsConfig.__struct_fields__]
    assert len(settings) == len(set(settings))
    assert public(Setters) == set(settings)
    assert public(AgentBuilder) == {*settings, *HOOKS, "plugin", "copy", "build"}


def test_an_agent_takes_exactly_the_fields_of_the_configuration_and_keeps_them():
    given = OTHER | {"replace_defaults": False, "agents": ()}  # one from a file brings a tool along
    config = Agent(**given).config
    assert {name: getattr(config, name) for name in FIELDS} == given
    with pytest.raises(ConfigurationError, match="no setting 'max_iterations'"):
        Agent(model=MODEL, max_iterations=5)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_iterations", "it belongs to the limits: limits=Limits(max_iterations=...)"),
        ("max_turns", "it belongs to the limits: limits=Limits(max_iterations=...)"),
        ("timeout", "it belongs to the limits: limits=Limits(timeout=...)"),
        ("budget", "a Budget belongs to a run: agent.run(prompt, parent=budget)"),
        ("session", "it belongs to a run: agent.run(prompt, session=...)"),
        *[(field, f"guardrails=GuardrailsConfig({field}=...)") for field in GuardrailsConfig.__struct_fields__],
        ("instructions", "did you mean 'system_prompt'?"),
        ("name", "did you mean 'agent_name'?"),
        ("tool", "did you mean 'tools'?"),
    ],
)
def test_a_setting_that_lives_elsewhere_is_named_with_its_place(name, hint):
    with pytest.raises(ConfigurationError, match=re.escape(hint)):
        Agent(model=MODEL, **{name: 5})


def test_every_field_is_tried():
    for given, kind, default in (
        (OTHER, LoopConfig, LoopConfig(model=ScriptedModel([]))),
        (LIMITS, Limits, Limits()),
        (GUARDRAILS, GuardrailsConfig, GuardrailsConfig()),
    ):
        assert set(given) == set(kind.__struct_fields__)
        assert [name for name in given if given[name] == getattr(default, name)] == []


def said(field):
    """A builder with this field set, and what the field needs beside it."""
    builder = AgentBuilder().model(MODEL)
    if field in ("plain_text_terminal_fallback_tool", "tool_choice"):
        builder.tools([deliver])
    return getattr(builder, field)(OTHER[field])


@pytest.mark.parametrize("field", list(OTHER))
def test_a_method_sets_its_field_and_no_other(field):
    plain = AgentBuilder().model(MODEL).build()
    config = said(field).build()
    assert getattr(config, field) == OTHER[field]
    changed = [name for name in FIELDS if getattr(config, name) != getattr(plain, name)]
    assert [name for name in changed if name == field or name != "tools"] in ([field], [])


@pytest.mark.parametrize(("part", "values"), [("limits", LIMITS), ("guardrails", GUARDRAILS)])
def test_a_method_sets_one_limit_or_one_guardrail(part, values):
    for name, value in values.items():
        whole = getattr(getattr(AgentBuilder().model(MODEL), name)(value).build(), part)
        assert whole == type(whole)(**{name: value})
    builder = AgentBuilder().model(MODEL)
    for name, value in values.items():
        getattr(builder, name)(value)
    whole = getattr(builder.build(), part)
    assert whole == type(whole)(**values)


@pytest.mark.parametrize("name", sorted(public(AgentBuilder)))
def test_every_method_is_documented_and_typed(name):
    method = getattr(AgentBuilder, name)
    assert inspect.getdoc(method)
    signature = inspect.signature(method)
    assert signature.return_annotation in ("Self", "LoopConfig")
    assert all(item.annotation is not item.empty for key, item in signature.parameters.items() if key != "self")


# --- what was said ------------------------------------------------------------------------------------------------


def test_single_limits_go_into_those_said_before():
    config = (
        AgentBuilder().model(MODEL).limits(Limits(timeout=9, max_tokens=8_000)).max_iterations(3).timeout(5).build()
    )
    assert config.limits == Limits(timeout=5, max_tokens=8_000, max_iterations=3)


@pytest.mark.parametrize(
    ("say_part", "whole"), [(("max_iterations", 3), Limits(timeout=9)), (("reserve_tokens", 3), GuardrailsConfig())]
)
def test_a_limit_that_was_said_is_not_undone_unnoticed(say_part, whole):
    name, value = say_part
    builder = getattr(AgentBuilder().model(MODEL), name)(value)
    setter = builder.limits if isinstance(whole, Limits) else builder.guardrails
    with pytest.raises(BuilderError, match=rf"would overwrite {name}\(3\)"):
        setter(whole)


def test_constraints_and_plugins_add_up_and_tools_are_as_last_said():
    other, watch = Free(), Watch()
    builder = AgentBuilder().model(MODEL).constraints([CONSTRAINT]).constraints([other])
    builder.plugins([GUARD]).plugin(watch).plugin(GUARD).tools([look]).tools([])
    config = builder.build()
    assert config.constraints == (CONSTRAINT, other)
    assert config.plugins == (GUARD, watch)
    assert config.tools == ()


def test_a_list_that_can_be_read_only_once_is_read_once():
    builder = AgentBuilder().model(MODEL).tools(item for item in [look])
    assert builder.build().tools == builder.build().tools == (look,)


def test_a_copy_goes_its_own_way():
    base = AgentBuilder().model(MODEL).max_iterations(3)
    other = base.copy().max_iterations(9).agent_name("other").plugin(GUARD)
    assert (base.build().limits.max_iterations, base.build().agent_name, base.build().plugins) == (3, "agent", ())
    assert (other.build().limits.max_iterations, other.build().plugins) == (9, (GUARD,))


def test_what_was_built_does_not_change_with_the_builder():
    builder = AgentBuilder().model(MODEL).max_iterations(3)
    config = builder.build()
    builder.max_iterations(9)
    assert config.limits.max_iterations == 3
    with pytest.raises(AttributeError):
        config.agent_name = "x"


def test_a_builder_shows_what_was_said():
    assert repr(AgentBuilder()) == "<AgentBuilder empty>"
    assert repr(AgentBuilder().model(MODEL).max_cost("1")) == "<AgentBuilder model, limits>"


# --- mistakes -----------------------------------------------------------------------------------------------------


def test_a_missing_model_is_named_by_its_call():
    with pytest.raises(BuilderError, match=r"call model\(\.\.\.\) before build\(\)"):
        AgentBuilder().max_iterations(3).build()


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda b: b.max_iterations(0), "max_iterations"),
        (lambda b: b.max_error_streak(-1), "max_error_streak"),
        (lambda b: b.limits("lots"), "limits"),
        (lambda b: b.limits("lots").timeout(3), "limits"),
        (lambda b: b.tool_timeout("soon"), "tool_timeout"),
        (lambda b: b.tools("look"), "tools"),
        (lambda b: b.plugins(GUARD), "plugins"),
        (lambda b: b.constraints(None), "constraints"),
        (lambda b: b.plugin(7), "plugin"),
        (lambda b: b.plugin(Guard), "plugin"),
        (lambda b: b.plugin(Guard()).plugin(Guard()), "two plugins are named 'guard'"),
        (lambda b: b.steering(GUARD), r"Guard does not have it"),
        (lambda b: b.before_tool_call(Guard), "function or a plugin object"),
        (lambda b: b.before_tool_call(None), "function or a plugin object"),
        (lambda b: b.before_tool_call(GUARD, name="x"), "own name"),
        (lambda b: b.event_observer(Watch(), events=()), "on the plugin itself"),
        (lambda b: b.event_observer(print, events=("RunEnded",)), "events"),
        (lambda b: b.tool_gate(lambda: None), "one argument"),
    ],
)
def test_a_mistake_is_a_builder_error_that_names_the_call(use, match):
    with pytest.raises(BuilderError, match=match):
        use(AgentBuilder().model(MODEL)).build()


def test_the_check_for_a_bound_is_the_agents():
    config = AgentBuilder().model(ScriptedModel([])).build()
    with pytest.raises(ConfigurationError, match="no limit at all"):
        Agent(config).run_sync("go")


@pytest.mark.parametrize(
    ("knob", "partner"),
    [
        (name, one.needs)
        for owner in (LoopConfig, Limits, GuardrailsConfig)
        for name, one in settings_of(owner).items()
        if one.needs
    ],
)
def test_a_knob_without_its_partner_is_ignored_with_one_warning(knob, partner):
    values = OTHER | LIMITS | {"graceful_turn_limit_grace_provider": lambda: 1}
    builder = getattr(AgentBuilder().model(ScriptedModel(["done"])).timeout(5), knob)(values[knob])
    with pytest.warns(UserWarning, match=rf"^{knob} has no effect without {partner}$") as caught:
        agent = Agent(builder.build())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert agent.run_sync("go").outcome is LoopOutcome.DONE


# --- hooks --------------------------------------------------------------------------------------------------------


def test_a_function_for_every_hook_is_called_under_its_name():
    builder = AgentBuilder().model(MODEL)

    def mine(context):
        return None

    for hook in HOOKS:
        getattr(builder, hook)(mine)
        getattr(builder, hook)(lambda context: None)
        getattr(builder, hook)(mine, name=f"my_{hook}")
    names = builder.build().plugin_names()
    for number, hook in enumerate(HOOKS):
        own = "mine" if not number else f"mine_{number + 1}"
        assert getattr(names, hook) == (own, hook, f"my_{hook}")


@virtual
async def test_functions_work_as_hooks_plain_and_async():
    seen = []

    def no_ones(context):
        return Block("no ones") if context.arguments["n"] == 1 else None

    async def louder(context):
        return AfterDecision(content=context.result.text.upper())

    class Called:
        async def __call__(self, event):
            seen.append(type(event))

    with ScriptedModel([call("look", n=1), call("look", n=2), "done"]) as model:
        builder = AgentBuilder().model(model).tools([look]).max_iterations(9).before_tool_call(no_ones)
        builder.after_tool_call(louder).event_observer(Called(), events=(RunEnded, StreamChunk))
        builder.steering(lambda context: "hurry" if context.iteration == 1 else None)
        config = builder.build()
        result = await Agent(config).run("go")
    assert [m.text for m in result.messages if m.role == "tool_result"] == ["Blocked: no ones", "SEEN 2"]
    assert [m.text for m in result.messages if m.role == "user"] == ["go", "hurry"]
    assert set(seen) == {RunEnded, StreamChunk}


# --- children -----------------------------------------------------------------------------------------------------

PASSED = {field: one.inherited for field, one in settings_of(LoopConfig).items()}
NOT_INHERITED = {
    "handoffs",
    "event_sink",
    "empty_outcome_retry_budget",
    "conversation_id",
    "system_prompt",
    "skills",
    "agents",
}


def test_the_table_has_every_field_in_its_order():
    assert tuple(PASSED) == FIELDS
    assert {field for field, passed in PASSED.items() if passed is Passed.NO} == NOT_INHERITED
    assert [field for field, passed in PASSED.items() if passed is Passed.AS_EACH_SAYS] == ["plugins"]
    assert [field for field, passed in PASSED.items() if passed is Passed.IN_PART] == ["limits"]


PARENTS = Limits(
    max_iterations=20,
    max_tokens=9_000,
    max_cost="1",
    timeout=60,
    max_tool_calls=50,
    max_depth=5,
    max_descendants=70,
    grace_iterations=4,
    landing_tokens=2_000,
    landing_seconds=7,
    scope="session",
)


def test_a_child_lands_and_delegates_like_its_parent_and_has_its_own_limits():
    parent = AgentBuilder().model(MODEL).prices({"scripted": (1, 1)}).limits(PARENTS).build()
    child = parent.child_builder().max_iterations(10).build()
    same = {"max_depth", "max_descendants", "grace_iterations", "landing_tokens", "landing_seconds"}
    said = [name for name in Limits.__struct_fields__ if getattr(PARENTS, name) != getattr(Limits(), name)]
    assert {name for name in said if getattr(child.limits, name) == getattr(PARENTS, name)} == same
    assert (child.limits.max_iterations, child.limits.max_tokens) == (10, None)


def test_a_child_without_a_turn_limit_has_no_grace_to_warn_about():
    parent = AgentBuilder().model(MODEL).prices({"scripted": (1, 1)}).limits(PARENTS).build()
    child = parent.child_builder().copy().build()
    assert (child.limits.grace_iterations, child.limits.landing_tokens) == (None, 2_000)
    Agent(child)  # a warning would be an error here


def test_limits_that_are_said_all_at_once_replace_what_was_inherited():
    parent = AgentBuilder().model(MODEL).prices({"scripted": (1, 1)}).limits(PARENTS).build()
    assert parent.child_builder().limits(Limits(max_iterations=3)).build().limits == Limits(max_iterations=3)


@pytest.mark.parametrize("field", [name for name in OTHER if name not in ("plugins", "limits")])
def test_a_child_inherits_a_field_or_not(field):
    parent = said(field).build()
    child = parent.child_builder().build()
    expected = getattr(AgentBuilder().model(MODEL).build(), field) if field in NOT_INHERITED else OTHER[field]
    assert getattr(child, field) == expected


class Opted(Watch):
    inheritable_to_child = True


class Shy(Guard):
    inheritable_to_child = False


class Gate(Plugin):
    def tool_gate(self, context):
        return None


class Heir(Guard):
    def __init__(self, name="heir"):
        self.name = name

    def for_child(self):
        return Heir("second")


class Leaving(Guard):
    def for_child(self):
        return None


class Source(Plugin):
    def steering(self, context):
        return None


def test_guarding_plugins_are_inherited_unless_they_decline_and_others_when_they_opt_in():
    plugins = [Watch(), Guard(), Opted(), Shy(), Gate(), Heir(), Leaving(), Source()]
    parent = AgentBuilder().model(MODEL).plugins(plugins).build()
    child = parent.child_builder().build()
    assert child.plugins[:3] == (plugins[1], plugins[2], plugins[4])
    assert [plugin.name for plugin in child.plugins[3:]] == ["second"]
    assert child.plugin_names().before_tool_call == ("guard", "second")


@pytest.mark.parametrize("answer", ["self", 7])
def test_a_plugin_that_cannot_say_who_serves_a_child_is_named(answer):
    class Wrong(Guard):
        def for_child(self):
            return answer

    with pytest.raises(ConfigurationError, match=r"Wrong\.for_child\(\) must return a Plugin"):
        AgentBuilder().model(MODEL).plugin(Wrong()).build().child_builder()


def test_a_plugin_that_crashes_for_a_child_is_named():
    class Crash(Guard):
        def for_child(self):
            raise OSError("no")

    with pytest.raises(ConfigurationError, match=r"Crash\.for_child\(\) raised OSError: no"):
        AgentBuilder().model(MODEL).plugin(Crash()).build().child_builder()


@virtual
async def test_a_childs_own_plugin_of_the_same_name_does_not_displace_the_parents_guard():
    class Strict(Plugin):
        name = "guard"

        def before_tool_call(self, context):
            return Block("the parent says no")

    class Lax(Plugin):
        name = "guard"

        def before_tool_call(self, context):
            return None

    ran = []

    @tool
    async def act() -> str:
        ran.append("act")
        return "acted"

    child = Agent(model=ScriptedModel([call("act"), "child done"]), tools=[act], plugins=[Lax()])

    class OnlyAct(Strict):
        def before_tool_call(self, context):
            return Block("the parent says no") if context.call.name == "act" else None

    parent = Agent(
        model=ScriptedModel([call("ask", task="x"), say("done")]),
        tools=[child.as_tool("ask", "Ask the child.")],
        limits=Limits(max_iterations=5),
        plugins=[OnlyAct()],
    )
    result = await parent.run("go")
    assert ran == []
    assert [m.text for m in result.children[0].messages if m.role == "tool_result"] == ["Blocked: the parent says no"]


@virtual
async def test_a_child_that_has_the_parents_guard_already_is_asked_once():
    asked = []

    class Counting(Plugin):
        def before_tool_call(self, context):
            asked.append(context.call.name)

    guard = Counting()
    base = AgentBuilder().model(ScriptedModel([call("look"), "child done"])).tools([look]).plugin(guard).build()
    child = Agent(base.child_builder().build())
    parent = Agent(
        model=ScriptedModel([call("ask", task="x"), say("done")]),
        tools=[child.as_tool("ask", "Ask the child.")],
        limits=Limits(max_iterations=5),
        plugins=[guard],
    )
    await parent.run("go")
    assert asked == ["ask", "look"]


@virtual
async def test_an_agent_forgets_the_parents_it_served():
    import gc

    child = Agent(model=ScriptedModel().forever("hi"))
    for _ in range(5):
        parent = Agent(
            model=ScriptedModel([call("ask", task="x"), say("done")]),
            tools=[child.as_tool("ask", "Ask the child.")],
            limits=Limits(max_iterations=5),
            plugins=[Guard()],
        )
        await parent.run("go")
    del parent
    gc.collect()
    assert len(child._heirs) == 0


class Busy(Plugin):
    """Three hooks that share what they keep for a run."""

    def __init__(self, seen=None):
        self.seen = [] if seen is None else seen

    def for_run(self):
        return Busy(self.seen)

    def before_tool_call(self, context):
        self.mark = context.call.name

    def after_tool_call(self, context):
        self.seen.append(self.mark)

    def steering(self, context):
        self.seen.append("steering")


def test_a_hook_method_registers_only_that_hook_of_a_plugin():
    config = AgentBuilder().model(MODEL).steering(Busy()).build()
    names = config.plugin_names()
    assert (names.steering, names.before_tool_call, names.after_tool_call) == (("busy",), (), ())


def test_two_hook_methods_register_two_hooks_of_one_plugin_with_its_state():
    plugin = Busy()
    builder = AgentBuilder().tools([look]).limits(Limits(max_iterations=5)).after_tool_call(plugin)
    config = builder.before_tool_call(plugin).model(ScriptedModel([call("look"), say("ok")])).build()
    assert len(config.plugins) == 1
    Agent(config).run_sync("go")
    assert plugin.seen == ["look"]


@pytest.mark.parametrize("whole_first", [True, False])
def test_a_plugin_registered_whole_stays_whole(whole_first):
    plugin = Busy()
    builder = AgentBuilder().model(MODEL)
    builder = builder.plugin(plugin).steering(plugin) if whole_first else builder.steering(plugin).plugin(plugin)
    assert builder.build().plugins == (plugin,)


def test_one_hook_of_a_guarding_plugin_reaches_children_only_when_it_guards():
    parent = AgentBuilder().model(MODEL).steering(Busy()).build()
    assert parent.child_builder().build().plugins == ()
    guarding = AgentBuilder().model(MODEL).before_tool_call(Busy()).build()
    assert guarding.child_builder().build().plugin_names().before_tool_call == ("busy",)


@pytest.mark.parametrize("field", ["extras", "prices"])
def test_what_a_caller_changes_later_changes_no_configuration(field):
    given = {"m": [1, {"deep": 2}]} if field == "extras" else {"m": [1, 2]}
    agent = Agent(model=MODEL, limits=Limits(max_iterations=1), **{field: given})
    given["m"].append(3)
    given["other"] = 7
    assert getattr(agent.config, field) == ({"m": [1, {"deep": 2}]} if field == "extras" else {"m": [1, 2]})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_turns", "did you mean 'max_iterations'?"),
        ("max_steps", "did you mean 'max_iterations'?"),
        ("token_budget", "did you mean 'max_tokens'?"),
        ("cost_limit", "did you mean 'max_cost'?"),
        ("max_budget_usd", "did you mean 'max_cost'?"),
        ("max_token", "did you mean 'max_tokens'?"),
        ("zzz", "the limits are max_iterations, max_tokens"),
    ],
)
def test_a_limit_under_another_name_gets_the_right_one(name, hint):
    with pytest.raises(ConfigurationError, match=re.escape(f"there is no limit {name!r}; {hint}")):
        Limits(**{name: 3})


def test_a_misspelt_guardrail_gets_the_right_one():
    with pytest.raises(ConfigurationError, match="did you mean 'max_error_streak'"):
        GuardrailsConfig(max_error_streaks=3)


def test_a_misspelt_setting_of_a_config_gets_the_right_one():
    with pytest.raises(ConfigurationError, match="did you mean 'tools'"):
        LoopConfig(model=MODEL, tolls=[])
