"""Look names up as any program would: ``look_up.py NAME=ADDRESS...``, each forward and reverse, all at once.

Prints a JSON object: ``wrong``, sentences about names of the cluster; ``slow``, whether the look-up of a name
that does not exist waits for a resolver that does not answer. Python 3.8 or later, standard library only.
"""

import json
import os
import socket
import sys
import threading
import time

PATIENCE_S = 2.0
NO_SUCH_NAME = "no-such-host.runkit.invalid"


def forward(name):
    """Return the addresses of ``name``."""
    return sorted({found[4][0] for found in socket.getaddrinfo(name, None, socket.AF_INET)})


def reverse(address):
    """Return the names of ``address``."""
    name, aliases, _ = socket.gethostbyaddr(address)
    return [name, *aliases]


def ask(answers, key, look_up, word):
    """Put what ``look_up`` says of ``word`` into ``answers``; an error is its text."""
    try:
        answers[key] = look_up(word)
    except OSError as error:
        answers[key] = error.strerror or str(error)


def verdicts(wanted, answers):
    """Yield a sentence for each name whose answers are not what they should be."""
    late = (
        f"no answer within {PATIENCE_S:g} s; see the line hosts of /etc/nsswitch.conf, files must come first"
    )
    for name, address in wanted:
        to, back = (answers.get((way, name), late) for way in ("forward", "reverse"))
        if to != [address]:
            said = to if isinstance(to, str) else "it is " + ", ".join(to)
            yield f"{name} should be {address}: {said}"
        elif name not in back or isinstance(back, str):
            said = back if isinstance(back, str) else "it is " + ", ".join(back)
            yield f"{address} should be {name}: {said}"


def main(arguments):
    """Ask everything at once, wait as long as a look-up may take, and tell."""
    wanted = [tuple(each.split("=", 1)) for each in arguments]
    questions = [(("missing", NO_SUCH_NAME), forward, NO_SUCH_NAME)]
    for name, address in wanted:
        questions.append((("forward", name), forward, name))
        questions.append((("reverse", name), reverse, address))
    answers = {}
    threads = [threading.Thread(target=ask, args=(answers, *each), daemon=True) for each in questions]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    slow = ("missing", NO_SUCH_NAME) not in answers
    print(json.dumps({"wrong": list(verdicts(wanted, answers)), "slow": slow}), flush=True)
    os._exit(0)  # threads that still wait would keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
