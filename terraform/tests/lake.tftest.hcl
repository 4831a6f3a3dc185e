mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
  namespace   = "tailrace_test"
}

run "buckets_are_closed_encrypted_and_versioned" {
  module {
    source = "./modules/lake"
  }

  assert {
    condition     = aws_s3_bucket.this["lake"].bucket == "tailrace-test-lake-123456789012" && aws_s3_bucket.this["artifacts"].bucket == "tailrace-test-artifacts-123456789012"
    error_message = "names are PROJECT-ENVIRONMENT-PART-ACCOUNT"
  }
  assert {
    condition     = alltrue([for one in values(aws_s3_bucket_versioning.this) : one.versioning_configuration[0].status == "Enabled"])
    error_message = "buckets are versioned"
  }
  assert {
    condition = alltrue([
      for one in values(aws_s3_bucket_server_side_encryption_configuration.this) : alltrue([
        for rule in one.rule : rule.apply_server_side_encryption_by_default[0].sse_algorithm == "aws:kms" && rule.apply_server_side_encryption_by_default[0].kms_master_key_id == var.kms_key_arn && rule.bucket_key_enabled
      ])
    ])
    error_message = "buckets are encrypted with the key"
  }
  assert {
    condition = alltrue([
      for one in concat(values(aws_s3_bucket_public_access_block.this), aws_s3_bucket_public_access_block.access) :
      one.block_public_acls && one.block_public_policy && one.ignore_public_acls && one.restrict_public_buckets
    ])
    error_message = "public access is blocked in each of four ways"
  }
  assert {
    condition = alltrue([
      for one in concat(values(aws_s3_bucket_policy.this), aws_s3_bucket_policy.access) :
      anytrue([for s in jsondecode(one.policy).Statement : s.Effect == "Deny" && try(s.Condition.Bool["aws:SecureTransport"], "") == "false" && length(s.Resource) == 2])
    ])
    error_message = "each bucket refuses what comes without TLS"
  }
  assert {
    condition     = alltrue([for one in values(aws_s3_bucket.this) : !one.force_destroy])
    error_message = "a bucket with data in it is not deleted unless that is asked for"
  }
}

run "what_is_no_longer_needed_expires_and_tables_do_not" {
  module {
    source = "./modules/lake"
  }

  assert {
    condition     = anytrue([for rule in aws_s3_bucket_lifecycle_configuration.lake.rule : rule.filter[0].prefix == "warehouse/_checkpoints/" && rule.expiration[0].days == 30])
    error_message = "checkpoints expire"
  }
  assert {
    condition     = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.lake.rule : rule.filter[0].prefix == "warehouse/_checkpoints/" || try(rule.expiration[0].days, 0) == 0 || rule.expiration[0].days == null])
    error_message = "nothing but checkpoints expires in the lake"
  }
  assert {
    condition     = alltrue([for one in [aws_s3_bucket_lifecycle_configuration.lake, aws_s3_bucket_lifecycle_configuration.artifacts] : anytrue([for rule in one.rule : length(rule.abort_incomplete_multipart_upload) > 0])])
    error_message = "uploads that never ended are aborted"
  }
  assert {
    condition     = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.lake.rule : length(rule.noncurrent_version_expiration) == 1])
    error_message = "old versions expire"
  }
  assert {
    condition     = toset([for rule in aws_s3_bucket_lifecycle_configuration.artifacts.rule : rule.filter[0].prefix if try(rule.expiration[0].days, 0) == 90]) == toset(["tailrace/logs/", "tailrace/outcomes/"])
    error_message = "logs and outcomes expire, and code does not"
  }
}

run "the_database_is_where_jobs_look_for_it" {
  module {
    source = "./modules/lake"
  }
  variables {
    more_databases = ["tailrace_marts"]
  }

  assert {
    condition     = aws_glue_catalog_database.this["tailrace_test"].location_uri == "s3://tailrace-test-lake-123456789012/warehouse/tailrace_test"
    error_message = "a database's tables are under the warehouse"
  }
  assert {
    condition     = length(aws_glue_catalog_database.this) == 2
    error_message = "further databases are made"
  }
  assert {
    condition     = output.warehouse == "s3://${aws_s3_bucket.this["lake"].id}/warehouse" && output.place == "s3://${aws_s3_bucket.this["artifacts"].id}/tailrace"
    error_message = "addresses are of the buckets"
  }
}

run "without_access_logs_there_is_no_bucket_of_them" {
  module {
    source = "./modules/lake"
  }
  variables {
    access_logs   = false
    force_destroy = true
  }

  assert {
    condition     = length(aws_s3_bucket.access) == 0 && length(aws_s3_bucket_logging.this) == 0 && aws_s3_bucket.this["lake"].force_destroy
    error_message = "no access logs, and destroy deletes"
  }
}

run "the_account_s_catalog_is_encrypted_when_asked_for" {
  module {
    source = "./modules/lake"
  }
  variables {
    encrypt_catalog = true
  }

  assert {
    condition     = aws_glue_data_catalog_encryption_settings.this[0].data_catalog_encryption_settings[0].encryption_at_rest[0].catalog_encryption_mode == "SSE-KMS"
    error_message = "the catalog is encrypted"
  }
}

run "a_namespace_that_tailrace_does_not_take_is_refused" {
  module {
    source = "./modules/lake"
  }
  command = plan
  variables {
    namespace = "Tailrace-Test"
  }
  expect_failures = [var.namespace]
}

run "checkpoints_are_not_taken_from_a_quiet_stream" {
  module {
    source = "./modules/lake"
  }
  command = plan
  variables {
    checkpoint_days  = 1
    log_days         = 1
    noncurrent_days  = 0
    warehouse_prefix = "/warehouse/"
    artifacts_prefix = "tailrace/"
    more_databases   = ["A B"]
  }
  expect_failures = [var.checkpoint_days, var.log_days, var.noncurrent_days, var.warehouse_prefix, var.artifacts_prefix, var.more_databases]
}

run "a_context_that_is_none_is_refused" {
  module {
    source = "./modules/lake"
  }
  command = plan
  variables {
    context = {
      name       = "Tailrace_Test"
      account_id = "12345"
      region     = "eu-central-1"
    }
  }
  expect_failures = [var.context]
}
