"""Words of Anthropic's Messages API, for the mouth that hears them and the adapter that says them.

1. A pair of words, OpenAI's before Anthropic's, stands here once; each side turns the table the way that it needs.
2. `TOOL_FIELDS` are the extension fields of a tool (docs/adr/0019-extension-fields.md): what the mouth lets in of them
   the adapter sends, as it came.

Sources: Anthropic's API reference, "Create a Message"; OpenAI's API description, `service_tier`.
"""

from __future__ import annotations

TIERS_ASKED = {"auto": "auto", "default": "standard_only"}
"""The service tier that a request may ask for."""

TIERS_USED = {"default": "standard", "priority": "priority"}
"""The service tier that an answer says it had."""

TOOL_FIELDS = ("defer_loading", "allowed_callers", "input_examples", "eager_input_streaming")
