# The image of the service. The steps are a script, so that tests run the very same ones (tests/manifests/test_image.py).
FROM python:3.11-slim AS build
WORKDIR /source
COPY .ci/image-steps .ci/build.lock .ci/runtime.lock .ci/
COPY pyproject.toml README.md ./
COPY extender extender
RUN .ci/image-steps /app

FROM python:3.11-slim
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Nobody in particular: the user has no name, no home and owns no file.
USER 65532:65532
EXPOSE 8080 9443 9444
ENTRYPOINT ["/app/bin/cohort-extender"]
CMD ["serve"]
