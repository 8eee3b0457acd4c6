#!/usr/bin/env python3
"""Codex, Claude Code, opencode and Qwen Code, each with a home of its own, the settings of docs/clients, and one prompt that needs
one tool: the fake engine asks for it, and only what the tool brought back makes it play the answer. argv[1]: their programs.
"""
import json
import os
import secrets
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api"))
from lilyserve import *

BIN = os.path.abspath(sys.argv.pop(1))
QUESTION = "What does the file secret.txt say?"


def settings(page):
    """The indented blocks of a page of docs/clients: what users are told to set."""
    with open("docs/clients/" + page) as f:
        blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", f.read(), re.M)
    return [re.sub(r"^    ", "", b, flags=re.M).strip("\n") + "\n" for b in blocks]


def exports(block):
    return dict(pair.split("=", 1) for line in block.splitlines() if line.startswith("export ") for pair in line[7:].split())


class Place:
    """A home, a folder with the secret file, a server whose script knows it."""

    def __init__(self, tool, arguments):
        self.home, self.work = tempfile.mkdtemp(), tempfile.mkdtemp()
        self.secret = "word-" + secrets.token_hex(8)
        with open(os.path.join(self.work, "secret.txt"), "w") as f:
            f.write(self.secret + "\n")
        values = {k: v.replace("WORK", self.work) for k, v in arguments.items()}
        self.server = Server({"replies": [
            {"match": [self.secret, '"name": "%s"' % tool], "tokens": ["I know it.", "</think>", "\n\n", "It says ", self.secret, "."]},
            {"match": [QUESTION, '"name": "%s"' % tool], "tokens": ["I must look.", "</think>", "\n\n", "Let me look.", call_text(tool, **values)]},
            {"tokens": ["</think>", "\n\n", "A title"]}]}, ["--ctx", "256K"])

    def here(self, text):
        return text.replace("http://127.0.0.1:8080", "http://127.0.0.1:%d" % self.server.port)

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(self.here(text))

    def ask(self, argv, env, refused=0):
        """refused: side requests that the server cannot serve yet."""
        env = {"HOME": self.home, "PATH": BIN + ":/usr/bin:/bin", "TERM": "dumb", **{k: self.here(v) for k, v in env.items()}}
        done = subprocess.run(argv, cwd=self.work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1200)
        log = "".join(line for line in self.server.log if "/v1/" in line)
        told = (done.returncode, done.stdout.decode()[-2000:], done.stderr.decode()[-2000:], log)
        assert done.returncode == 0 and "It says " + self.secret in done.stdout.decode(), told
        assert len(re.findall("status=(?!200)", log)) == refused and log.count("finish=tool_calls") == 1, told
        assert self.server.stop() == 0


def test_codex():
    p = Place("exec_command", {"cmd": "cat secret.txt"})
    p.write(p.home + "/.codex/config.toml", settings("codex.md")[0])
    p.ask(["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION], {})


def test_claude_code():
    p = Place("Read", {"file_path": "WORK/secret.txt"})
    p.ask(["claude", "-p", QUESTION], exports(settings("claude-code.md")[0]), refused=1)  # a title, by a JSON schema


def test_opencode():
    p = Place("read", {"filePath": "WORK/secret.txt"})
    p.write(p.work + "/opencode.json", settings("opencode.md")[0])
    p.ask(["opencode", "run", QUESTION], {})


def test_qwen_code():
    p = Place("read_file", {"file_path": "WORK/secret.txt"})
    p.ask(["qwen", "-p", QUESTION], exports(settings("qwen-code.md")[0]))


run(globals())
