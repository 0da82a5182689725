# The app, and every other command, on a CPU or a GPU.
#
#   docker build -t arr-coc .                                 for CPUs
#   docker build -t arr-coc --build-arg TORCH=auto .          for the GPU of the machine that builds; or cu128, cu130, ...
#   docker run --rm -p 127.0.0.1:7860:7860 arr-coc            the app, at http://127.0.0.1:7860
#   docker run --rm -p 127.0.0.1:7860:7860 --gpus all arr-coc
#   docker run --rm arr-coc ask                               the built-in sample; or look, crop, tokens, ...
#   docker run --rm -p 127.0.0.1:8080:8080 arr-coc proxy --upstream https://api.openai.com/v1 --host 0.0.0.0
#   docker run --rm -v "$PWD:/data" arr-coc ask page.png "What is the total?" --json
#   docker run --rm -v models:/home/reader/.cache ...         keeps what was downloaded from the Hub
FROM python:3.12-slim AS build
ARG TORCH=cpu
# hadolint ignore=DL3013
RUN pip install --no-cache-dir uv && uv venv /opt/arr-coc
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN uv pip install --no-cache --python /opt/arr-coc --torch-backend "$TORCH" --compile-bytecode '.[app,pdf,ocr,proxy]'

FROM python:3.12-slim
RUN useradd --uid 1000 --create-home reader && mkdir /data && chown reader /data
COPY --from=build /opt/arr-coc /opt/arr-coc
ENV PATH=/opt/arr-coc/bin:$PATH PYTHONUNBUFFERED=1
USER 1000
WORKDIR /data
EXPOSE 7860
ENTRYPOINT ["arr-coc"]
CMD ["app", "--host", "0.0.0.0"]
