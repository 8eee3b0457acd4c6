"""Renders the conversations of template_cases.py with the official templates, as transformers' apply_chat_template does.

usage: templates.py TEMPLATES_DIR   (writes cases.jsonl into it)

One JSON object a line: {"name", "template": "3.6"|"3.5", "body", "text"} or {..., "error"} with the exception's message.
body is a chat-completions body; add_generation_prompt is true where it is absent. Numbers in body are spelt on purpose."""
import hashlib
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import cases

FILES = {"3.6": "Qwen3.6-35B-A3B.chat_template.jinja", "3.5": "Qwen3.5-official.chat_template.jinja"}


def compile_template(path):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env.from_string(open(path, encoding="utf-8").read())


def render(template, body):
    """("text", rendering) or ("error", message)."""
    variables = {"messages": body["messages"], "tools": body.get("tools"), "add_generation_prompt": body.get("add_generation_prompt", True)}
    try:
        return "text", template.render(**variables, **body.get("chat_template_kwargs", {}))
    except (jinja2.exceptions.TemplateError, TypeError) as e:
        return "error", str(e)


def check_with_transformers(folder):
    """Compiles with transformers' own environment: the renderings must not differ."""
    from transformers.utils.chat_template_utils import _compile_jinja_template
    for version, f in FILES.items():
        path = os.path.join(folder, f)
        ours, theirs = compile_template(path), _compile_jinja_template(open(path, encoding="utf-8").read())
        for name, raw, _ in cases():
            assert render(ours, json.loads(raw)) == render(theirs, json.loads(raw)), (version, name)


def main(folder):
    names, n = set(), {"text": 0, "error": 0}
    with open(os.path.join(folder, "cases.jsonl"), "w", encoding="utf-8") as f:
        for name, raw, sha in cases():
            assert name not in names and "\n" not in raw
            names.add(name)
            for version, file in FILES.items():
                kind, out = render(compile_template(os.path.join(folder, file)), json.loads(raw))
                if sha and version == "3.6":
                    assert hashlib.sha256(out.encode()).hexdigest() == sha, name
                n[kind] += 1
                head = json.dumps({"name": name, "template": version})[:-1]
                f.write(f'{head}, "body": {raw}, "{kind}": {json.dumps(out, ensure_ascii=False)}}}\n')
    check_with_transformers(folder)
    print(f"{len(names)} conversations, {n['text']} renderings, {n['error']} errors; the nine of model.md as hashed")


if __name__ == "__main__":
    main(sys.argv[1])
