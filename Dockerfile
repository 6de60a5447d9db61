# syntax=docker/dockerfile:1
#
# For both platforms at once: docker buildx build --platform linux/amd64,linux/arm64 -t keyhook .
# .github/compose.yaml runs the image with all taken away that it does not need.

# Built on the machine's own platform for any other: Go needs no emulation for that.
FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /out/keyhook . \
	&& mkdir -p /out/data

# No shell and no package manager, but what a static binary still needs: authorities, time zones, /tmp, a user.
FROM gcr.io/distroless/static-debian13:nonroot
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Keyhook" \
	org.opencontainers.image.description="API keys and signed webhooks in one process and one SQLite file" \
	org.opencontainers.image.source="https://github.com/keyhook/keyhook" \
	org.opencontainers.image.base.name="gcr.io/distroless/static-debian13:nonroot" \
	org.opencontainers.image.version="$VERSION" \
	org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/keyhook /keyhook
# A volume takes over the owner of the directory that it is first mounted on.
COPY --from=build --chown=65532:65532 /out/data /data
ENV KEYHOOK_STORAGE_PATH=/data/keyhook.db \
	KEYHOOK_SERVER_LISTEN=0.0.0.0:8080
USER 65532:65532
VOLUME /data
EXPOSE 8080
# serve ends what is in flight within server.shutdown_grace: give the container a little more to stop.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 CMD ["/keyhook", "healthcheck"]
ENTRYPOINT ["/keyhook"]
CMD ["serve"]
