"""What a server answers is a result that the model can read, and reads once."""

import pytest
from mcp.types import CallToolResult, TextContent

from glidepath.mcp import Artifacts, as_tool_result

LONG = "a line of the file\n" * 500


@pytest.mark.parametrize(
    ("texts", "structured", "told"),
    [
        ([LONG], {"content": LONG}, LONG),
        ([LONG], {"result": LONG}, LONG),
        ([LONG], {"content": LONG, "lines": 500}, LONG + '\n{"lines":500}'),
        (
            [LONG],
            {"files": [{"name": "a", "text": LONG}]},
            LONG + '\n{"files":[{"name":"a","text":"[the text above]"}]}',
        ),
        (["5"], {"result": 5}, "5"),
        (["a", "b"], {"result": ["a", "b"]}, "a\nb"),
        (['{"x": 1}', '{"x": 2}'], {"result": [{"x": 1}, {"x": 2}]}, '{"x": 1}\n{"x": 2}'),
        (['{\n "n": 1\n}'], {"n": 1}, '{\n "n": 1\n}'),
        (["It is warm."], {"degrees": 21}, 'It is warm.\n{"degrees":21}'),
        ([], {"n": 1}, '{"n":1}'),
        ([], {"result": []}, '{"result":[]}'),
        (["{broken"], {"n": 1}, '{broken\n{"n":1}'),
    ],
    ids=[
        "content",
        "result",
        "more",
        "inside",
        "number",
        "list",
        "objects",
        "json",
        "other",
        "alone",
        "empty",
        "broken",
    ],
)
def test_a_result_that_comes_as_text_and_as_data_is_sent_once(tmp_path, texts, structured, told):
    content = [TextContent(type="text", text=text) for text in texts]
    answer = CallToolResult(content=content, structured_content=structured)
    assert as_tool_result(answer, Artifacts(tmp_path, "s")).content == told
