"""Resources as tools, prompts as slash commands."""

import pytest

from glidepath.apps.cli import prompt_of
from glidepath.mcp import list_prompts, prompt_text
from glidepath.testing import call, say

from .servers import ERAS, agent_with, fake, results

pytestmark = pytest.mark.process
BOTH = {"resources": {}, "prompts": {}}


def library(era="legacy", **settings):
    return fake("lib", era=era, setup={"tools": ["echo"], "capabilities": BOTH}, **settings)


@pytest.mark.parametrize("era", ERAS)
async def test_resources_are_listed_and_read_with_tools(era):
    turns = [call("lib_list_resources"), call("lib_read_resource", uri="file:///r.txt"), say("ok")]
    listed, read = results(await agent_with(turns, library(era)).run("go"))
    assert listed.text == "file:///r.txt  r.txt"
    assert "the resource" in read.text


async def test_a_server_without_resources_has_no_such_tools():
    result = await agent_with([call("fake_list_resources"), say("ok")], fake()).run("go")
    assert results(result)[0].kind == "unknown_tool"


async def test_resources_can_be_left_out():
    result = await agent_with([call("lib_list_resources"), say("ok")], library(resources=False)).run("go")
    assert results(result)[0].kind == "unknown_tool"


@pytest.mark.parametrize("era", ERAS)
async def test_a_prompt_becomes_a_text(era):
    supply = library(era).open()
    [offered] = await list_prompts(supply)
    assert (offered.name, offered.required) == ("review", ("what",))
    assert await prompt_text(supply, "review", {"what": "the code"}) == "Review the code."
    await supply.close()


async def test_a_slash_command_sends_a_prompt():
    sources = [library(), fake()]
    assert await prompt_of("/lib:review all of it", sources) == ("Review all of it.", "lib:review")
    assert await prompt_of("/lib:review what=this one", sources) == ("Review this one.", "lib:review")
    assert await prompt_of("/prompts", sources) == ("/lib:review what  Review.", "")
    assert await prompt_of("/lib:nothing", sources) == (None, "")
    assert await prompt_of("/other:review", sources) == (None, "")
