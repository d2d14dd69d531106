"""The hosts libpq would connect to: an address may name several hosts, or a service, or leave hosts to the environment.

The rules are libpq's own (PostgreSQL's documentation, 34.1.1 and 34.15 to 34.17): a service fills in what the address
leaves out, then the environment does; `hostaddr` is where the connection goes, whatever `host` says.
"""

import configparser
import itertools
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from schemas.errors import InputError

_CREDENTIALS = ("user", "password", "passfile")
_PORT = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]]*)(:(?P<port>\d*))?")
ADDRESS = re.compile(
    r"(?P<scheme>[^:/?#]+)://((?P<user>[^/@]*)@)?(?P<hosts>[^/?]*)(/(?P<database>[^?]*))?(\?(?P<query>.*))?",
    re.DOTALL,
)
"""An address as libpq reads it: several hosts, what is before an @ a user even with ? or # in it, and no fragment.

Of several hosts urllib reads none in brackets but the first, from Python 3.13 on.
"""


def options_of(dsn: str) -> dict[str, str]:
    """Return the options of an address, and of the service that it or PGSERVICE names: host, port, dbname and others.

    Raises:
        InputError: the address is not a postgresql:// address, or there is no such service.
    """
    address = ADDRESS.fullmatch(dsn)
    hosts = [_PORT.fullmatch(host) for host in address["hosts"].split(",")] if address else []
    if address is None or address["scheme"] not in ("postgresql", "postgres") or None in hosts:
        raise InputError("NEST_DB_DSN: is not an address like postgresql://host:5432/database. Give one.")
    matches = [host for host in hosts if host is not None]
    options = {
        "host": ",".join(unquote(match["host"]).strip("[]") for match in matches),
        "port": ",".join(match["port"] or "" for match in matches),
        "dbname": unquote(address["database"] or ""),
    }
    options = {name: value for name, value in options.items() if value.strip(",")} | dict(
        parse_qsl(address["query"] or "")
    )
    if options.pop("ssl", None) == "true":
        options.setdefault("sslmode", "require")
    if service := options.pop("service", None) or os.environ.get("PGSERVICE"):
        options = {
            key: value for key, value in _service(service).items() if key not in _CREDENTIALS
        } | options
    return options


def hosts_of(options: dict[str, str]) -> list[str]:
    """Return every host, address or socket folder that libpq may connect to; "" is this machine's socket."""
    names = options.get("host") or os.environ.get("PGHOST", "")
    addresses = options.get("hostaddr") or os.environ.get("PGHOSTADDR", "")
    pairs = itertools.zip_longest(addresses.split(","), names.split(","), fillvalue="")
    return [address.strip() or name.strip() for address, name in pairs]


def address_of(options: dict[str, str], user: str, password: str) -> str:
    """Return an address with these options and credentials."""
    options = dict(options)
    database = quote(options.pop("dbname", ""), safe="")
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in options.items())
    return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@/{database}?{query}"


def _service(name: str) -> dict[str, str]:
    """Return the options of a service from libpq's service files.

    Raises:
        InputError: the service is in none of the files.
    """
    user_file = os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"
    files = [Path(user_file).expanduser()]
    if folder := os.environ.get("PGSYSCONFDIR"):
        files.append(Path(folder) / "pg_service.conf")
    for file in files:
        parser = configparser.RawConfigParser(delimiters=("=",), strict=False, default_section="")
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            raise InputError(f"{file}: is not a service file that libpq can read. Correct it.") from None
        if parser.has_section(name):
            return dict(parser.items(name))
    raise InputError(
        f"NEST_DB_DSN: its service is in none of {', '.join(map(str, files))}. Name one of their services, or the host."
    )
