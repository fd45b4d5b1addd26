"""Server reflection, v1 and v1alpha: what tools like grpcurl ask to list, describe and call services.

1. Both versions have the same messages on the wire; the installed package brings those of v1alpha, and v1's file is
   made of it by renaming the package.
2. Only files that the named services stand on are told: the pool of the process may hold others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection_pb2

from terraflow.hints.http2.call import Call
from terraflow.hints.http2.methods import Bidi, Methods
from terraflow.hints.http2.status import GrpcError, Status

V1ALPHA = "grpc.reflection.v1alpha.ServerReflection"
V1 = "grpc.reflection.v1.ServerReflection"
_V1_FILE = "grpc/reflection/v1/reflection.proto"


def v1_file(pool: descriptor_pool.DescriptorPool) -> FileDescriptor:
    """The file of v1's service, added to the pool unless something else has brought it."""
    try:
        return pool.FindFileContainingSymbol(V1)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        file.name, file.package = _V1_FILE, "grpc.reflection.v1"
        for message in file.message_type:
            for part in message.field:
                if part.type_name:
                    part.type_name = part.type_name.replace(".v1alpha.", ".v1.")
        for method in file.service[0].method:
            method.input_type = method.input_type.replace(".v1alpha.", ".v1.")
            method.output_type = method.output_type.replace(".v1alpha.", ".v1.")
        file.options.Clear()
        pool.Add(file)
        return pool.FindFileByName(_V1_FILE)


class Reflection:
    """Tells of these services, and of itself."""

    def __init__(self, services: Iterable[str]) -> None:
        pool = descriptor_pool.Default()
        v1_file(pool)
        self._services = sorted({*services, V1, V1ALPHA})
        self._files: dict[str, FileDescriptor] = {}
        for service in self._services:
            self._add(pool.FindFileContainingSymbol(service))
        self._pool = pool

    def _add(self, file: FileDescriptor) -> None:
        if file.name not in self._files:
            self._files[file.name] = file
            for needed in file.dependencies:
                self._add(needed)

    def _closure(self, file: FileDescriptor, told: dict[str, bytes]) -> dict[str, bytes]:
        if file.name not in told:
            told[file.name] = file.serialized_pb
            for needed in file.dependencies:
                self._closure(needed, told)
        return told

    def _file_answer(self, find: Callable[[], FileDescriptor]) -> dict[str, Any]:
        file = find()
        if file.name not in self._files:
            raise KeyError(file.name)
        told = list(self._closure(file, {}).values())
        return {"file_descriptor_response": reflection_pb2.FileDescriptorResponse(file_descriptor_proto=told)}

    def _symbol(self, name: str) -> FileDescriptor:
        service, _, method = name.rpartition(".")
        if service in self._services:
            found: FileDescriptor = (
                self._pool.FindServiceByName(service).methods_by_name[method].containing_service.file
            )
        else:
            found = self._pool.FindFileContainingSymbol(name)
        return found

    def _extension(self, asked: Any) -> FileDescriptor:
        message = self._pool.FindMessageTypeByName(asked.containing_type)
        extension: Any = self._pool.FindExtensionByNumber(message, asked.extension_number)
        file: FileDescriptor = extension.file
        return file

    def _extension_numbers(self, name: str) -> dict[str, Any]:
        message = self._pool.FindMessageTypeByName(name)
        if message.file.name not in self._files:
            raise KeyError(name)
        numbers = sorted(found.number for found in self._pool.FindAllExtensions(message))
        told = reflection_pb2.ExtensionNumberResponse(base_type_name=name, extension_number=numbers)
        return {"all_extension_numbers_response": told}

    def _list(self) -> dict[str, Any]:
        told = [reflection_pb2.ServiceResponse(name=name) for name in self._services]
        return {"list_services_response": reflection_pb2.ListServiceResponse(service=told)}

    def _answer(self, asked: Any) -> dict[str, Any]:
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "file_by_filename": lambda: self._file_answer(lambda: self._files[asked.file_by_filename]),
            "file_containing_symbol": lambda: self._file_answer(lambda: self._symbol(asked.file_containing_symbol)),
            "file_containing_extension": lambda: self._file_answer(
                lambda: self._extension(asked.file_containing_extension)
            ),
            "all_extension_numbers_of_type": lambda: self._extension_numbers(asked.all_extension_numbers_of_type),
            "list_services": self._list,
        }
        kind = asked.WhichOneof("message_request")
        if kind is None:
            raise GrpcError(Status.INVALID_ARGUMENT, "the request asks nothing")
        try:
            return answers[kind]()
        except KeyError:
            error = reflection_pb2.ErrorResponse(error_code=Status.NOT_FOUND, error_message="there is no such thing")
            return {"error_response": error}

    async def _info(self, requests: AsyncIterator[Any], _: Call) -> AsyncIterator[Any]:
        async for asked in requests:
            answer = self._answer(asked)
            yield reflection_pb2.ServerReflectionResponse(valid_host=asked.host, original_request=asked, **answer)

    def methods(self) -> Methods:
        """The rows for a server's table."""
        parse = reflection_pb2.ServerReflectionRequest.FromString
        serialize = reflection_pb2.ServerReflectionResponse.SerializeToString
        return {f"/{name}/ServerReflectionInfo": Bidi(self._info, parse, serialize) for name in (V1, V1ALPHA)}
