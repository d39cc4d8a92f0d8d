"""Plugins against injected instructions that break one clause each."""

from tests.contracts.broken.hooks import Trial as AnyTrial
from tests.contracts.examine import breaks

from glidepath.conformance import ProvenanceContract
from glidepath.messages import IMPORTED, ToolResultMessage, UserMessage
from glidepath.provenance import Provenance
from glidepath.spi import Ask
from glidepath.values import replace


class Trial(AnyTrial, ProvenanceContract):
    """The real one."""

    Mine = Provenance


@breaks("PROVENANCE-1", "PROVENANCE-4")
class Anxious(Trial):
    """Asks about every effect."""

    class Mine(Provenance):
        def before_tool_call(self, context):
            held = not context.tool or not context.tool.read_only
            return Ask("an effect", ("read_inbox",)) if held and not context.approved else None


@breaks("PROVENANCE-2", "PROVENANCE-6", "PROVENANCE-8", "PROVENANCE-9", "PROVENANCE-10", "PROVENANCE-11")
class Believing(Trial):
    """Takes whatever stands in any text for an address it may use."""

    class Mine(Provenance):
        def before_tool_call(self, context):
            texts = [one.text for part in (*context.above, context.messages) for one in part if one.role != "assistant"]
            if any(str(context.arguments.get("to")) in text for text in texts if IMPORTED not in _origins(context)):
                return None
            return super().before_tool_call(context)


def _origins(context):
    return [name for one in context.messages for name in getattr(one, "origins", ())]


@breaks("PROVENANCE-3")
class Literal(Trial):
    """Holds only what it finds in untrusted text."""

    class Mine(Provenance):
        def before_tool_call(self, context):
            parts = (*context.above, context.messages)
            outside = [one.text for part in parts for one in part if getattr(one, "origins", ())]
            values = [str(value) for value in context.arguments.values()]
            found = any(value in text for value in values for text in outside)
            return super().before_tool_call(context) if found or context.call.name != "send_message" else None


@breaks("PROVENANCE-4")
class Paranoid(Trial):
    """Holds everything once untrusted text was read."""

    class Mine(Provenance):
        def __init__(self):
            super().__init__(rules={"*": "ask"})


@breaks("PROVENANCE-5")
class Willing(Trial):
    """Believes that the user has asked for every action."""

    class Mine(Provenance):
        def __init__(self):
            super().__init__(words={"*": ["read"]})


@breaks("PROVENANCE-6")
class Marked(Trial):
    """Judges only tools that say of themselves that they are consequential."""

    class Mine(Provenance):
        def before_tool_call(self, context):
            return super().before_tool_call(context) if getattr(context.tool, "consequential", True) else None


@breaks("PROVENANCE-7")
class Silent(Trial):
    """Asks, and does not say what it suspects."""

    class Mine(Provenance):
        def before_tool_call(self, context):
            answer = super().before_tool_call(context)
            return Ask("is this right?") if isinstance(answer, Ask) else answer


class Seen(Provenance):
    """Is shown other messages."""

    def shown(self, message):
        return message

    def before_tool_call(self, context):
        self._forget()
        messages = [self.shown(message) for message in context.messages]
        above = tuple([self.shown(message) for message in part] for part in context.above)
        return super().before_tool_call(replace(context, messages=messages, above=above))


@breaks("PROVENANCE-8")
class Deaf(Trial):
    """Trusts what comes from a child."""

    class Mine(Seen):
        def shown(self, message):
            child = isinstance(message, ToolResultMessage) and message.tool_name == "delegate"
            return replace(message, origins=()) if child else message


@breaks("PROVENANCE-9")
class Obedient(Trial):
    """Takes whoever gives it a task for the user."""

    class Mine(Seen):
        def shown(self, message):
            task = isinstance(message, UserMessage) and IMPORTED not in message.origins
            return replace(message, origins=()) if task else message


@breaks("PROVENANCE-10", "PROVENANCE-6")
class Echoing(Trial):
    """Trusts what a trusted tool says, whatever it was asked."""

    class Mine(Seen):
        def shown(self, message):
            return replace(message, call_id="nobody's") if isinstance(message, ToolResultMessage) else message


@breaks("PROVENANCE-11")
class Forgetful(Trial):
    """Looks at the last few messages only."""

    class Mine(Seen):
        def before_tool_call(self, context):
            return super().before_tool_call(replace(context, messages=context.messages[-9:]))


@breaks("PROVENANCE-12")
class Trusting(Trial):
    """Believes an imported session."""

    class Mine(Seen):
        def shown(self, message):
            if IMPORTED not in getattr(message, "origins", ()):
                return message
            return replace(message, origins=tuple(one for one in message.origins if one != IMPORTED))
