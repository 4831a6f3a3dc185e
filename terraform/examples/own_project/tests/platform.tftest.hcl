# `terraform test` makes nothing: AWS is mocked, in the shape that other resources take its answers in.
mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/a-role" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:123456789012:log-group:a-group" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:a-topic" }
  }
  mock_resource "aws_emrserverless_application" {
    defaults = { arn = "arn:aws:emr-serverless:eu-central-1:123456789012:/applications/00f2kr1v4l0tbc09" }
  }
}

variables {
  region  = "eu-central-1"
  streams = { orders = { lag_seconds = 300 } }
  landing = { shop-landing = "orders/" }
}

run "jobs_run_the_project_s_bundle" {
  assert {
    condition     = endswith(output.artifacts, "/shop/1") && output.runner.stream.place == output.artifacts
    error_message = "the bundle goes where the jobs look"
  }
  assert {
    condition     = output.runner.stream.definitions == "definitions/pipelines" && startswith(output.runner.stream.conf["spark.archives"], "${output.artifacts}/environment.tar.gz#environment,")
    error_message = "the definitions and Python are those of the bundle"
  }
  assert {
    condition     = endswith(output.job_environment.TAILRACE_WAREHOUSE, "/warehouse") && output.job_environment.TAILRACE_NAMESPACE == "shop_dev"
    error_message = "the lake is the project's own"
  }
}

run "an_image_of_one_s_own_brings_python_and_jars" {
  variables {
    image_uri = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/shop:1"
  }

  assert {
    condition     = output.runner.stream.conf["spark.archives"] == "${output.artifacts}/definitions.tar.gz#definitions" && !contains(keys(output.runner.stream.conf), "spark.jars")
    error_message = "only the definitions are out of the bundle"
  }
}
