"""Does reading a prompt ever look beyond this machine, say for a tokenizer? (D4)"""

import subprocess
import sys

SCRIPT = """
import sys

looked = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        looked.append((event, arguments))
sys.addaudithook(watch)

import socket
try:
    socket.create_connection(("127.0.0.1", 9), 1)
except OSError:
    pass
assert looked, "the hook sees nothing"
looked.clear()

from headway.engine.model_source import resolve_model
from headway.engine.tokenizer import load_tokenizer

tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
chat = tokenizer.render_chat([{"role": "user", "content": "hi"}])
assert tokenizer.encode(chat, add_special_tokens=False)
assert looked == [], looked
"""


def test_a_prompt_is_read_without_the_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
