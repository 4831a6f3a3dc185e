mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  lake_bucket_arn      = "arn:aws:s3:::lake"
  artifacts_bucket_arn = "arn:aws:s3:::artifacts"
  databases            = ["tailrace_test"]
  applications = {
    stream   = "arn:aws:emr-serverless:eu-central-1:123456789012:/applications/stream"
    backfill = "arn:aws:emr-serverless:eu-central-1:123456789012:/applications/backfill"
  }
  log_groups = {
    stream   = "arn:aws:logs:eu-central-1:123456789012:log-group:/tailrace-test/stream"
    backfill = "arn:aws:logs:eu-central-1:123456789012:log-group:/tailrace-test/backfill"
  }
  analyst_principals = ["arn:aws:iam::123456789012:role/analysts"]
}

run "the_key_rotates" {
  module {
    source = "./modules/security"
  }

  assert {
    condition     = aws_kms_key.this[0].enable_key_rotation && aws_kms_key.this[0].deletion_window_in_days == 30
    error_message = "the key rotates, and is not gone at once"
  }
  assert {
    condition     = aws_kms_alias.this[0].name == "alias/tailrace-test"
    error_message = "the key has the name of all else"
  }
  assert {
    condition     = alltrue([for s in jsondecode(aws_kms_key.this[0].policy).Statement : try(s.Principal.AWS, "") != "*"])
    error_message = "the key is not everybody's"
  }
}

run "no_role_may_do_everything_or_anything_everywhere" {
  module {
    source = "./modules/security"
  }

  assert {
    condition = alltrue(flatten([
      for policy in values(output.policies) : [for s in jsondecode(policy) : [for action in s.Action : !strcontains(action, "*")]]
    ]))
    error_message = "each action is named"
  }
  assert {
    condition = alltrue(flatten([
      for policy in values(output.policies) : [for s in jsondecode(policy) : !contains(flatten([s.Resource]), "*") || length(keys(try(s.Condition, {}))) > 0]
    ]))
    error_message = "what has no resource is held by a condition"
  }
  assert {
    condition = alltrue(flatten([
      for policy in values(output.policies) : [for s in jsondecode(policy) : alltrue([for action in s.Action : contains(["s3:GetAccountPublicAccessBlock", "cloudwatch:PutMetricData"], action)]) if contains(flatten([s.Resource]), "*")]
    ]))
    error_message = "only actions that have no resource are on *"
  }
}

run "a_role_is_for_its_own_application" {
  module {
    source = "./modules/security"
  }

  assert {
    condition     = jsondecode(aws_iam_role.stream.assume_role_policy).Statement[0].Condition.ArnLike["aws:SourceArn"] == var.applications.stream && jsondecode(aws_iam_role.backfill.assume_role_policy).Statement[0].Condition.ArnLike["aws:SourceArn"] == var.applications.backfill
    error_message = "a run of the one application does not take the other's role"
  }
  assert {
    condition     = [aws_iam_role.stream.name, aws_iam_role.backfill.name, aws_iam_role.analyst[0].name, aws_iam_role.airflow[0].name] == ["tailrace-test-stream", "tailrace-test-backfill", "tailrace-test-analyst", "tailrace-test-airflow"]
    error_message = "roles are named as all else"
  }
  assert {
    condition     = !anytrue([for s in jsondecode(output.policies.stream) : contains(s.Action, "glue:DeleteTable")]) && anytrue([for s in jsondecode(output.policies.backfill) : contains(s.Action, "glue:DeleteTable")])
    error_message = "a stream drops no table"
  }
  assert {
    condition     = alltrue(flatten([for s in jsondecode(output.policies.stream) : [for r in flatten([s.Resource]) : startswith(r, "arn:aws:s3:::lake/warehouse/")] if s.Sid == "WriteTables"]))
    error_message = "a stream writes under the warehouse alone"
  }
}

run "an_analyst_reads_and_does_nothing_else" {
  module {
    source = "./modules/security"
  }

  assert {
    condition     = toset(flatten([for s in jsondecode(output.policies.analyst) : s.Action if s.Effect == "Allow"])) == toset(["s3:ListBucket", "s3:GetBucketLocation", "s3:GetObject", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables", "kms:Decrypt"])
    error_message = "an analyst reads"
  }
  assert {
    condition     = jsondecode(aws_iam_role.analyst[0].assume_role_policy).Statement[0].Principal.AWS == ["arn:aws:iam::123456789012:role/analysts"]
    error_message = "who is named takes the role, and nobody else"
  }
}

run "airflow_gives_the_two_roles_to_emr_and_no_other" {
  module {
    source = "./modules/security"
  }

  assert {
    condition     = length([for s in jsondecode(output.policies.airflow) : s if contains(s.Action, "iam:PassRole") && length(s.Resource) == 2 && try(s.Condition.StringEquals["iam:PassedToService"], "") == "emr-serverless.amazonaws.com"]) == 1
    error_message = "roles are passed to EMR Serverless alone"
  }
  assert {
    condition     = !anytrue([for s in jsondecode(output.policies.airflow) : contains(s.Action, "glue:UpdateTable")])
    error_message = "Airflow commits nothing by itself"
  }
}

run "secrets_are_read_by_whom_they_are_for" {
  module {
    source = "./modules/security"
  }
  variables {
    secrets = {
      "kafka/password" = { description = "Of the broker", readers = ["stream"] }
    }
  }

  assert {
    condition     = aws_secretsmanager_secret.this["kafka/password"].name == "tailrace-test/kafka/password" && aws_secretsmanager_secret.this["kafka/password"].kms_key_id == output.kms_key_arn
    error_message = "a secret is encrypted with the key"
  }
  assert {
    condition     = length([for s in jsondecode(output.policies.stream) : s if s.Sid == "ReadItsSecrets"]) == 1 && length([for s in concat(jsondecode(output.policies.backfill), jsondecode(output.policies.airflow)) : s if s.Sid == "ReadItsSecrets"]) == 0
    error_message = "the stream reads it, and nobody else"
  }
}

run "kafka_and_landing_are_the_stream_s" {
  module {
    source = "./modules/security"
  }
  variables {
    msk     = { cluster_name = "tailrace-test-kafka", topics = ["flights"] }
    landing = { "landing-bucket" = "flights/" }
  }

  assert {
    condition     = length([for s in jsondecode(output.policies.stream) : s if s.Sid == "ReadTopics" && s.Resource == ["arn:aws:kafka:eu-central-1:123456789012:topic/tailrace-test-kafka/*/flights"]]) == 1
    error_message = "the stream reads the topics that are named"
  }
  assert {
    condition     = length([for s in jsondecode(output.policies.stream) : s if s.Sid == "ReadWhatLands" && contains(s.Resource, "arn:aws:s3:::landing-bucket/flights/*")]) == 1
    error_message = "the stream reads what lands"
  }
  assert {
    condition     = length([for s in jsondecode(output.policies.backfill) : s if startswith(s.Sid, "ReadTopics") || s.Sid == "ReadWhatLands"]) == 0
    error_message = "backfills read the log, not its source"
  }
}

run "an_existing_key_is_used_and_none_is_made" {
  module {
    source = "./modules/security"
  }
  variables {
    existing_kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/99999999-2222-3333-4444-555555555555"
    airflow              = false
    analyst_principals   = []
  }

  assert {
    condition     = length(aws_kms_key.this) == 0 && length(aws_kms_alias.this) == 0 && output.kms_key_arn == var.existing_kms_key_arn
    error_message = "the existing key is the key"
  }
  assert {
    condition     = length(aws_iam_role.airflow) == 0 && output.airflow_role_arn == null && length(aws_iam_role.analyst) == 0 && output.analyst_role_arn == null
    error_message = "roles of what is not there are not made"
  }
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/security"
  }
  command = plan
  variables {
    existing_kms_key_arn = "alias/mine"
    key_deletion_days    = 1
    databases            = []
    analyst_principals   = ["*"]
    secret_recovery_days = 3
    secrets              = { "Kafka" = { description = "no", readers = ["everybody"] } }
  }
  expect_failures = [var.existing_kms_key_arn, var.key_deletion_days, var.databases, var.analyst_principals, var.secret_recovery_days, var.secrets]
}
