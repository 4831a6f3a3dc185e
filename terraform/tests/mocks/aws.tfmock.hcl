# What AWS would have said, in the shape that other resources take it in.
mock_resource "aws_kms_key" {
  defaults = {
    arn    = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
    key_id = "11111111-2222-3333-4444-555555555555"
  }
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

mock_resource "aws_secretsmanager_secret" {
  defaults = { arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:a-secret-AbCdEf" }
}

mock_resource "aws_emrserverless_application" {
  defaults = {
    id  = "00f2kr1v4l0tbc09"
    arn = "arn:aws:emr-serverless:eu-central-1:123456789012:/applications/00f2kr1v4l0tbc09"
  }
}

mock_resource "aws_msk_serverless_cluster" {
  defaults = { bootstrap_brokers_sasl_iam = "boot-abc.c1.kafka-serverless.eu-central-1.amazonaws.com:9098" }
}

mock_resource "aws_mwaa_environment" {
  defaults = { webserver_url = "abc.c1.airflow.amazonaws.com" }
}

mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}

mock_data "aws_partition" {
  defaults = { partition = "aws" }
}
