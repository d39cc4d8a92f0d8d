"""LiteLLM's own budget without its database: names one key with a budget, and settles what was reserved.

Loaded by LiteLLM's proxy as `custom_auth`. The budget is in the variable CROWD_BUDGET. Its logger that settles
reservations is registered with a database only, so it is registered here.
"""

import os

import litellm
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.proxy_server import _ProxyDBLogger

NAME = "crowd"
_settling = []


async def user_api_key_auth(request, api_key):
    if not _settling:
        _settling.append(_ProxyDBLogger())
        litellm.logging_callback_manager.add_litellm_callback(_settling[0])
    return UserAPIKeyAuth(
        api_key=NAME,
        token=NAME,
        user_role=LitellmUserRoles.INTERNAL_USER,
        max_budget=float(os.environ["CROWD_BUDGET"]),
        spend=0.0,
    )
