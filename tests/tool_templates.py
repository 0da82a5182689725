"""Chat templates that know tools, each with its family's own way to write a reply, as published."""

from __future__ import annotations

QWEN3_VL = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].content is string %}
        {{- messages[0].content }}
    {%- else %}
        {%- for content in messages[0].content %}
            {%- if 'text' in content %}
                {{- content.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set image_count = namespace(value=0) %}
{%- set video_count = namespace(value=0) %}
{%- macro media(contents) %}
    {%- if contents is string %}
        {{- contents }}
    {%- else %}
        {%- for content in contents %}
            {%- if content.type == 'image' or 'image' in content or 'image_url' in content %}
                {%- set image_count.value = image_count.value + 1 %}
                {%- if add_vision_id %}Picture {{ image_count.value }}: {% endif -%}
                <|vision_start|><|image_pad|><|vision_end|>
            {%- elif content.type == 'video' or 'video' in content %}
                {%- set video_count.value = video_count.value + 1 %}
                {%- if add_vision_id %}Video {{ video_count.value }}: {% endif -%}
                <|vision_start|><|video_pad|><|vision_end|>
            {%- elif 'text' in content %}
                {{- content.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {{- media(message.content) }}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {{- media(message.content) }}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and message.content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- media(message.content) }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""Qwen3-VL's, its three loops over the parts of a message written once: replies share a turn of the user."""

_TURNS = "{%- for message in messages %}\n    {%- if message.role"
QWEN3_5 = QWEN3_VL.replace(
    _TURNS,
    """{%- set ns = namespace(query=false) %}
{%- for message in messages if message.role == "user" %}
    {%- set words = media(message.content) | trim %}
    {%- if not (words.startswith('<tool_response>') and words.endswith('</tool_response>')) %}
        {%- set ns.query = true %}
    {%- endif %}
{%- endfor %}
{%- set image_count.value = 0 %}
{%- set video_count.value = 0 %}
{%- if not ns.query %}
    {{- raise_exception('No user query found in messages.') }}
{%- endif %}
"""
    + _TURNS,
).replace("assistant\\n' }}\n{%- endif %}\n", "assistant\\n<think>\\n' }}\n{%- endif %}\n")
"""Qwen3.5's: it wants a question, and begins the answer with a thought."""
QWEN2_5_VL = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content or "
    "'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}"
    "Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}{% if add_vision_id %}Video {{ video_count.value }}: "
    "{% endif %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% endif %}"
)
"""Qwen2.5-VL's: a turn of any role is written under its name."""

_PARTS = (
    "{% macro parts(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}"
    "{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endmacro %}"
)
LLAMA = (
    _PARTS + "{% for m in messages %}{% if m.role == 'tool' %}"
    '{{ "<|im_start|>ipython<|im_end|>\n\n" }}{{ parts(m.content) }}{{ "<|endoftext|>" }}'
    "{% elif m.tool_calls %}{% if m.tool_calls|length != 1 %}"
    '{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif %}'
    '{{ "<|im_start|>assistant<|im_end|>\n\n" }}{{ m.tool_calls[0].function | tojson }}{{ "<|endoftext|>" }}'
    '{% else %}{{ "<|im_start|>" + m.role + "<|im_end|>\n\n" }}{{ parts(m.content) }}{{ "<|endoftext|>" }}'
    "{% endif %}{% endfor %}{% if add_generation_prompt %}"
    '{{ "<|im_start|>assistant<|im_end|>\n\n" }}{% endif %}'
)
"""Llama's way: a role of its own, and one call at a time (the names of its tokens are those of the tests)."""
MISTRAL = (
    _PARTS + "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user and assistant') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}"
    "{% if m.role == 'user' %}[INST]{{ parts(m.content) }}[/INST]"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id|length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
    "[TOOL_RESULTS]{{ m.tool_call_id }}[TOOL_CONTENT]{{ parts(m.content) }}[/TOOL_RESULTS]"
    "{% elif m.tool_calls %}{% for call in m.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]"
    "{{ call.function.arguments | tojson }}{% endfor %}<|endoftext|>"
    "{% else %}{{ parts(m.content) }}<|endoftext|>{% endif %}{% endfor %}"
)
"""Mistral's way: between marks of its own, and only where the turns alternate."""
GLM = (
    _PARTS + "[gMASK]<sop>{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ parts(m.content) }}"
    "{% elif m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "<|observation|>{% endif %}{{ '\n<tool_response>\n' }}{{ parts(m.content) }}{{ '\n</tool_response>' }}"
    "{% elif m.role == 'assistant' %}<|assistant|>\n{{ parts(m.content) }}"
    "{% for call in m.tool_calls or [] %}{{ '\n<tool_call>' }}{{ call.function.name }}"
    "{% for k, v in call.function.arguments.items() %}<arg_key>{{ k }}</arg_key>"
    "<arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>{% endfor %}"
    "{% else %}<|{{ m.role }}|>\n{{ parts(m.content) }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""GLM's way: an observation, of one reply or several."""
FOLDED = (
    _PARTS + "{% for m in messages %}<|im_start|>"
    "{{ 'user' if m.role == 'tool' else m.role }}\n{{ 'Result: ' if m.role == 'tool' }}{{ parts(m.content) }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Each reply as a turn of the user that begins with a word."""
TOOLS = {
    "qwen3_vl": QWEN3_VL,
    "qwen3_5": QWEN3_5,
    "qwen2_5_vl": QWEN2_5_VL,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "glm": GLM,
    "folded": FOLDED,
}
"""By the way that they write replies of tools."""
