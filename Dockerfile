# syntax=docker/dockerfile:1
#
# For both platforms at once: docker buildx build --platform linux/amd64,linux/arm64 -t keyhook .
# .github/compose.yaml runs the image without privileges.

# The build runs on the machine's own platform. Go compiles for other platforms without emulation.
FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=
# The flags of .github/release/build, so the image has the same binary as the archives.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=true \
	-ldflags "-s -w -buildid= -X $(go list -m)/server/build.version=$VERSION" -o /out/keyhook . \
	&& mkdir -p /out/data

# This image has no shell and no package manager. It has root certificates, time zones, /tmp and an unprivileged user.
FROM gcr.io/distroless/static-debian13:nonroot
ARG VERSION=dev
ARG REVISION=unknown
ARG SOURCE=https://keyhook.example
LABEL org.opencontainers.image.title="Keyhook" \
	org.opencontainers.image.description="API keys and signed webhooks in one process and one SQLite file" \
	org.opencontainers.image.source="$SOURCE" \
	org.opencontainers.image.base.name="gcr.io/distroless/static-debian13:nonroot" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/keyhook /keyhook
# A new volume gets the owner of the directory that it is mounted on.
COPY --from=build --chown=65532:65532 /out/data /data
ENV KEYHOOK_STORAGE_PATH=/data/keyhook.db \
	KEYHOOK_SERVER_LISTEN=0.0.0.0:8080
USER 65532:65532
VOLUME /data
EXPOSE 8080
# serve finishes requests within server.shutdown_grace. Give the container more time than that to stop.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 CMD ["/keyhook", "healthcheck"]
ENTRYPOINT ["/keyhook"]
CMD ["serve"]
