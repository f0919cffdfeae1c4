"""Fetch one small file; {"url": ..., "proxy": ...} is read from standard input, for no process list to show.

Prints {"content": base64} or {"error": reason}. Python 3.8 or later, standard library only.
"""

import base64
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

MOST_BYTES = 1 << 20
PATIENCE_S = 20


def fetch(url, proxy):
    """Return what is at ``url``, MOST_BYTES at most."""
    proxies = {"http": proxy, "https": proxy} if proxy else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    login, _, place = urllib.parse.urlsplit(url).netloc.rpartition("@")
    plain = url.replace(login + "@" + place, place, 1) if login else url
    request = urllib.request.Request(plain)  # noqa: S310 - the address is the inventory's
    if login:  # urllib would take it for a part of the server's name
        word = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        request.add_unredirected_header("Authorization", "Basic " + word)
    with opener.open(request, timeout=PATIENCE_S) as answer:
        return answer.read(MOST_BYTES)


def main():
    """Fetch, and say how it went."""
    wanted = json.load(sys.stdin)
    try:
        said = {"content": base64.b64encode(fetch(wanted["url"], wanted["proxy"])).decode()}
    except urllib.error.HTTPError as error:
        said = {"error": f"the server answers {error.code} {error.reason}"}
    except urllib.error.URLError as error:
        said = {"error": str(getattr(error.reason, "strerror", None) or error.reason)}
    except (OSError, ValueError, http.client.HTTPException) as error:
        said = {"error": getattr(error, "strerror", None) or type(error).__name__}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
