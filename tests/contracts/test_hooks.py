"""Our plugins, and the textbook examples of hooks that we have none of, keep their contracts."""

from glidepath import Plugin
from glidepath.conformance import (
    AfterToolCallContract,
    BeforeToolCallContract,
    ContextOverflowRecoveryContract,
    ContextTransformContract,
    EventObserverContract,
    FollowUpContract,
    ProvenanceContract,
    SteeringContract,
    ToolGateContract,
)
from glidepath.messages import UserMessage
from glidepath.observe import LogObserver
from glidepath.plugins import ApprovalGate, ChannelSteering, OpeningGate, ToolListGate
from glidepath.provenance import Provenance
from glidepath.spi import AfterDecision, Block, Replace
from glidepath.teams.mailbox import INBOX, TeamMailbox
from glidepath.testing import EventRecorder
from glidepath.testing.conformance import call_context
from glidepath.testing.recorder import _Recording


class TestApprovalGate(BeforeToolCallContract):
    subject = ApprovalGate

    def make_plugin(self):
        return ApprovalGate(["send_*"])

    def refused(self):
        return call_context("send_mail")


class TestProvenanceAsks(ProvenanceContract):
    subject = Provenance

    def make_plugin(self):
        return Provenance()


class TestProvenanceBlocks(ProvenanceContract):
    subject = Provenance

    def make_plugin(self):
        return Provenance("block")


class TestABlockingHook(BeforeToolCallContract):
    class Fence(Plugin):
        """Keeps a tool inside a folder, and clips what it may ask for."""

        async def before_tool_call(self, context):
            if str(context.arguments.get("path", "")).startswith("/"):
                return Block("only paths inside the workspace are allowed")
            if len(context.arguments.get("query", "")) > 5 and context.replaceable:
                return Replace({**context.arguments, "query": context.arguments["query"][:5]})
            return None

    subject = Fence

    def make_plugin(self):
        return self.Fence()

    def refused(self):
        return call_context("read", arguments={"path": "/etc/passwd"})


class TestARedaction(AfterToolCallContract):
    class Redact(Plugin):
        """Takes account numbers out of results."""

        def after_tool_call(self, context):
            text = context.result.text.replace("12345678", "[number]")
            return AfterDecision(content=text) if text != context.result.text else None

    subject = Redact
    hidden = "12345678"

    def make_plugin(self):
        return self.Redact()


class TestAReminder(ContextTransformContract):
    class Remind(Plugin):
        """Puts a reminder at the end of what the model sees."""

        def context_transform(self, context):
            return [*context.messages, UserMessage("Remember to be brief.", internal=True, reason="reminder")]

    subject = Remind

    def make_plugin(self):
        return self.Remind()


class TestARecovery(ContextOverflowRecoveryContract):
    class TaskOnly(Plugin):
        """Starts again from the task and what a person said last."""

        def context_overflow_recovery(self, context):
            said = [message for message in context.messages if isinstance(message, UserMessage)]
            return [said[0], said[-1]] if len(said) > 2 else None

    subject = TaskOnly

    def make_plugin(self):
        return self.TaskOnly()


class TestLogObserver(EventObserverContract):
    subject = LogObserver

    def make_plugin(self):
        return LogObserver()


class TestEventRecorder(EventObserverContract):
    subject = _Recording

    def make_plugin(self):
        return EventRecorder().as_plugin()


class TestAnAsyncObserver(EventObserverContract):
    class Counting(Plugin):
        """Counts events without haste."""

        def __init__(self):
            self.count = 0

        async def event_observer(self, event):
            self.count += 1

    def make_plugin(self):
        return self.Counting()


class TestChannelThatSteers(SteeringContract):
    subject = ChannelSteering

    def make_plugin(self):
        return ChannelSteering()

    def put(self, plugin, text):
        plugin.send(text)
        return True


class TestChannelThatFollowsUp(FollowUpContract):
    subject = ChannelSteering

    def make_plugin(self):
        return ChannelSteering()

    def put(self, plugin, text):
        plugin.send(text)
        return True


class Mail:
    """The notes of the current task, as a coordinator opens them."""

    def make_plugin(self):
        INBOX.set([])
        return TeamMailbox()

    def put(self, plugin, text):
        INBOX.get().append(text)
        return True


class TestMailboxThatSteers(Mail, SteeringContract):
    subject = TeamMailbox


class TestMailboxThatFollowsUp(Mail, FollowUpContract):
    subject = TeamMailbox


class TestOpeningGate(ToolGateContract):
    subject = OpeningGate

    def make_plugin(self):
        return OpeningGate(["lookup"])


class TestToolListGate(ToolGateContract):
    subject = ToolListGate
    denied = frozenset({"send_mail", "delete"})

    def make_plugin(self):
        return ToolListGate(deny=["send_*", "delete"])
