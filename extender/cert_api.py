"""What certificates need of the API server, in their own words: they know nothing of its client."""

from extender.kube.client import ApiClient, PatchType


class CertApi:
    """The API client in the words of ``certs``."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, path: str) -> bytes:
        """Read an object."""
        return await self._client.get(path)

    async def post(self, path: str, body: bytes) -> bytes:
        """Create an object."""
        return await self._client.post(path, body)

    async def put(self, path: str, body: bytes) -> bytes:
        """Replace an object."""
        return await self._client.put(path, body)

    async def apply(self, path: str, body: bytes, *, field_manager: str) -> bytes:
        """Apply fields of an object, as *field_manager*."""
        return await self._client.patch(path, body, kind=PatchType.APPLY, field_manager=field_manager, force=True)
