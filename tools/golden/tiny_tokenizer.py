"""The tiny checkpoint's tokenizer: 256 byte letters, 28 merges and the 33 added tokens of the real one."""
import json

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")

ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
         "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
         "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
         "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
         "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
         "<tts_text_bos_single>", "<|audio_pad|>"]
PLAIN = set(ADDED[14:26])  # special: false in the real file

# In rank order. Pairs that overlap in "the", "ing", "    " and the bytes of "é", U+0301 and "中" make rank order matter.
MERGES = ["Ġ Ġ", "ĠĠ ĠĠ", "i n", "Ġ t", "e r", "h e", "Ġ a", "o n", "r e", "Ġt he", "in g", "Ċ Ċ", "Ġ w", "n d", "Ġa nd",
          "Ã ©", "Ì ģ", "ä ¸", "ä¸ Ń", "o u", "l l", "Ġ s", "t h", "s t", "y ou", "Ġ 1", ". Ċ", "a s"]


def byte_letters():
    """byte -> letter of the GPT-2 alphabet."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def vocabulary():
    letters = sorted(byte_letters().values(), key=ord)
    return {t: i for i, t in enumerate(letters + [m.replace(" ", "") for m in MERGES])}


def added_entry(i, content):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": content not in PLAIN}


def tokenizer_json(merges_as_pairs=True, added=ADDED):
    vocab = vocabulary()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added_entry(len(vocab) + i, c) for i, c in enumerate(added)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [m.split(" ") for m in MERGES] if merges_as_pairs else MERGES}}


def tokenizer_config():
    base = len(vocabulary())
    entries = {str(base + i): {k: v for k, v in added_entry(0, c).items() if k != "id"} for i, c in enumerate(ADDED)}
    return {"add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": entries, "bos_token": None,
            "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
            "model_max_length": 262144, "pad_token": "<|endoftext|>", "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}


def added_id(content):
    return len(vocabulary()) + ADDED.index(content)


def dump(obj, path):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, ensure_ascii=False, indent=2)
