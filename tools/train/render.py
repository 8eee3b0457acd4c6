"""The family's chat template in Python: a conversation as (text, weight) pieces whose joined text is the template's.

Standard library only; test_pipeline.py compares it with the Jinja template. Weight is what training gives the piece's
tokens; generated text has 1.
"""
import json

TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_TAIL = """
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>"""


def tojson(v):
    return json.dumps(v, ensure_ascii=False)


def call_text(calls, content):
    out = ""
    for i, c in enumerate(calls):
        out += ("\n\n" if content.strip() else "") if i == 0 else "\n"
        out += f"<tool_call>\n<function={c['name']}>\n"
        for k, v in c["arguments"].items():
            out += f"<parameter={k}>\n{v if isinstance(v, str) else tojson(v)}\n</parameter>\n"
        out += "</function>\n</tool_call>"
    return out


def prompt(messages, tools=None, think=True, preserve=False):
    """Pieces of the rendered conversation up to and with the generation prompt."""
    out = []
    first = messages[0]
    system = first["content"].strip() if first["role"] == "system" else None
    if tools:
        out.append(("<|im_start|>system\n" + TOOLS_HEAD, 0))
        out += [("\n" + tojson(t), 0) for t in tools]
        out.append((TOOLS_TAIL + ("\n\n" + system if system else "") + "<|im_end|>\n", 0))
    elif system is not None:
        out.append((f"<|im_start|>system\n{system}<|im_end|>\n", 0))
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, m in enumerate(messages):
        role, text = m["role"], (m.get("content") or "").strip()
        if role == "user":
            out.append((f"<|im_start|>user\n{text}<|im_end|>\n", 0.1))
        elif role == "assistant":
            body = text + call_text(m.get("tool_calls") or [], text) + "<|im_end|>\n"
            out.append(("<|im_start|>assistant\n", 0))
            if preserve or i > last:
                out.append((f"<think>\n{(m.get('reasoning_content') or '').strip()}\n</think>\n\n", 0))
            out.append((body, m.get("weight", 0.3)))
        elif role == "tool":
            head = "<|im_start|>user" if i == 0 or messages[i - 1]["role"] != "tool" else ""
            tail = "<|im_end|>\n" if i + 1 == len(messages) or messages[i + 1]["role"] != "tool" else ""
            out.append((f"{head}\n<tool_response>\n{text}\n</tool_response>{tail}" + ("" if tail else ""), 0))
    out.append(("<|im_start|>assistant\n<think>\n" + ("" if think else "\n</think>\n\n"), 0))
    return out


def reply(case):
    """What the model should generate for a case, with the stop token."""
    text = case.get("answer") or ""
    body = text + call_text(case.get("calls") or [], text) + "<|im_end|>"
    return (case["reasoning"].strip() + "\n</think>\n\n" if case["think"] else "") + body


def case_messages(case):
    sys = [{"role": "system", "content": case["system"]}] if case.get("system") else []
    return sys + case["messages"]


def pieces(case):
    return prompt(case_messages(case), case.get("tools"), case["think"]) + [(reply(case), 1.0)]


def parse(text, think):
    """Generated text (special tokens kept, stop removed) -> reply object as `lily run --json` gives it."""
    reasoning = ""
    if think:
        head, sep, tail = text.partition("</think>")
        reasoning, text = (head, tail) if sep else (text, "")
    calls = []
    while "<tool_call>" in text:
        before, _, rest = text.partition("<tool_call>")
        block, _, after = rest.partition("</tool_call>")
        name = block.partition("<function=")[2].partition(">")[0]
        args = {}
        for piece in block.split("<parameter=")[1:]:
            k, _, v = piece.partition(">")
            v = v.partition("</parameter>")[0]
            args[k] = v.removeprefix("\n").removesuffix("\n")
        calls.append({"name": name, "arguments": args})
        text = before + after
    return {"text": text.strip(), "reasoning": reasoning.strip(), "tool_calls": calls}
