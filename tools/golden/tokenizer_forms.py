"""The tiny tokenizer in the other forms in which such tokenizers are published, with the ids of 40 texts.

usage: tokenizer_forms.py OUT_DIR
  OUT_DIR/original/      tokenizer.json with merges as strings "a b" and only the first 26 added tokens, tokenizer_config.json
                         with all 33 (the original repository's form)
  OUT_DIR/vocab_merges/  vocab.json, merges.txt and that tokenizer_config.json, no tokenizer.json
  OUT_DIR/expected.jsonl {"text", "ids", "text_of_ids"?}, from `tokenizers` on the tiny checkpoint's own tokenizer.json"""
import json
import os
import sys

from tokenizers import Tokenizer

import tiny_tokenizer as tok

TEXTS = [
    "", " ", "  ", "     ", "\n", "\n\n\n", "\r\n\r\n", " \n \n", "\t\tx", "a", "the", " the the  the   the", "The thing and the other",
    "you're, I'LL, we'VE, it's, 's'S", "1234567890 11 1", "x=1;\n\n\ny += 22.5e-3  # end", "in in\u00a0in\u3000in", "caf\u00e9 cafe\u0301",
    "\u0301start", "!\u0301!", "\u4e2d\u6587\u4e2d", "\u3053\u3093\u306b\u3061\u306f\u3002", "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947", "\U0001f469\u200d\U0001f4bb\U0001f1ee\U0001f1f9", "\u1e9b\u0323 \u212b \u2126 \uac00 \u1100\u1161",
    "<|im_start|>user\nhello<|im_end|>\n", "<think>\n\n</think>\n\n", "<tool_call>x</tool_call><tool_response>", "<|audio_start|><tts_pad><|audio_pad|>",
    "<tts_text_bos><tts_text_bos_single><tts_text_eod>", "<|im_start|", "<|im_start|><|im_start|>>", "<<think>>", "e<think>\u0301", "a\u0000b\u007f\u0085c\u2028d",
    "\ufeffbom \ufffd", "stst  ststing.\n.\n\n", "x" * 70 + " " * 33 + "\u00e9" * 20,
]


def main(out):
    original, pair = os.path.join(out, "original"), os.path.join(out, "vocab_merges")
    os.makedirs(original, exist_ok=True), os.makedirs(pair, exist_ok=True)
    tok.dump(tok.tokenizer_json(merges_as_pairs=False, added=tok.ADDED[:26]), os.path.join(original, "tokenizer.json"))
    for d in (original, pair):
        tok.dump(tok.tokenizer_config(), os.path.join(d, "tokenizer_config.json"))
    tok.dump(tok.vocabulary(), os.path.join(pair, "vocab.json"))
    with open(os.path.join(pair, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "\n".join(tok.MERGES) + "\n")
    t = Tokenizer.from_str(json.dumps(tok.tokenizer_json()))
    assert len(TEXTS) == 40
    with open(os.path.join(out, "expected.jsonl"), "w", encoding="utf-8") as f:
        for text in TEXTS:
            ids = t.encode(text).ids
            line, back = {"text": text, "ids": ids}, t.decode(ids, skip_special_tokens=False)
            if back != text:
                line["text_of_ids"] = back
            f.write(json.dumps(line, ensure_ascii=False) + "\n")
    check(original, pair, t)


def check(original, pair, reference):
    """Both forms through transformers give the same ids."""
    from transformers import AutoTokenizer
    for d in (original, pair):
        other = AutoTokenizer.from_pretrained(d)
        bad = [x for x in TEXTS if other(x)["input_ids"] != reference.encode(x).ids]
        assert not bad, (d, bad)
    print(f"{len(TEXTS)} texts: transformers gives the same ids from both forms")


if __name__ == "__main__":
    main(sys.argv[1])
