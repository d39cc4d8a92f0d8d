"""Requests to Bedrock with AWS credentials: signed as Amazon's documentation says, over the bytes that are sent.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import re
from urllib.parse import quote

import anthropic
import pytest

from glidepath.errors import RejectedError
from glidepath.messages import StreamEnd, TextDelta, UserMessage
from glidepath.models import KIND, AnthropicModel, ModelRequest, ToolSpec, resolve

from .server import Answer, Wire, error, run
from .test_hosts import SAID, chunk

pytest.importorskip("boto3", reason="boto3 signs requests for Bedrock: pip install boto3")

NAME = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ID, SECRET, TOKEN, REGION = "AKIAPLANTED", "planted/Secret+Key0123456789", "planted-session-token", "eu-central-1"
SPEC = ToolSpec("search", "Suche überall.", {"type": "object", "properties": {}})
ASKED = ModelRequest(messages=[UserMessage("Grüße 🌦")], tools=(SPEC,), system_prompt="Be brief.")


def expected(request):
    """The signature of a request as the server received it, worked out from the specification."""
    given = request.headers["authorization"]
    scope = re.search(r"Credential=[^/]+/(\d{8})/([^/]+)/([^/]+)/aws4_request", given)
    names = re.search(r"SignedHeaders=([^,]+)", given)[1].split(";")
    canonical = "\n".join(
        [
            "POST",
            quote(request.path, safe="/-_.~"),  # every part is encoded once more, as for all services but S3
            "",
            *[f"{name}:{' '.join(request.headers[name].split())}" for name in names],
            "",
            ";".join(names),
            hashlib.sha256(request.raw).hexdigest(),
        ]
    )
    where = f"{scope[1]}/{scope[2]}/{scope[3]}/aws4_request"
    to_sign = "\n".join(
        ["AWS4-HMAC-SHA256", request.headers["x-amz-date"], where, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{SECRET}".encode()
    for part in (scope[1], scope[2], scope[3], "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest(), scope, names


async def asked(answer, *, token=None):
    async with Wire([answer]) as wire:
        client = anthropic.AsyncAnthropicBedrock(
            aws_access_key=ID, aws_secret_key=SECRET, aws_session_token=token, aws_region=REGION, base_url=wire.url
        )
        model = AnthropicModel(NAME, client=client)
        try:
            return [delta async for delta in model.stream(ASKED)], wire.requests[0]
        finally:
            await client.close()


@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
def test_a_request_is_signed_over_the_bytes_that_are_sent(token):
    answer = Answer([chunk(event) for event in SAID], kind=KIND)
    deltas, request = run(lambda: asked(answer, token=token))
    assert "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)]) == "Hello there."
    assert isinstance(deltas[-1], StreamEnd)
    signature, scope, names = expected(request)
    assert request.headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={ID}/")
    assert (scope[2], scope[3]) == (REGION, "bedrock")
    assert {"host", "x-amz-date"} <= set(names)
    assert ("x-amz-security-token" in names) is (token is not None)
    assert request.headers["authorization"].endswith(f"Signature={signature}")
    assert request.body["messages"][0]["content"][0]["text"] == "Grüße 🌦"


def test_a_credential_that_amazon_refuses_is_named_and_never_shown():
    said = {"message": f"The security token {TOKEN} included in the request is invalid for {SECRET}."}
    with pytest.raises(RejectedError) as caught:
        run(lambda: asked(error(403, said), token=TOKEN))
    assert SECRET not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert "security token" in str(caught.value)


def test_the_string_signs_with_the_credentials_of_the_environment(monkeypatch):
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)
    model = resolve(f"bedrock:{NAME}")
    client = model._clients.peek()
    assert (client.api_key, client.aws_region) == (None, REGION)
    assert str(client.base_url).rstrip("/") == f"https://bedrock-runtime.{REGION}.amazonaws.com"
