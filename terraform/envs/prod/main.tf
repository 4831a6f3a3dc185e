provider "aws" {
  region = var.region

  default_tags {
    tags = {
      Project     = var.project
      Environment = "prod"
      ManagedBy   = "terraform"
    }
  }
}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

# Kept: destroy stops at a bucket that is not empty, and what was deleted can be had back for weeks.
module "platform" {
  source = "../../modules/platform"

  project     = var.project
  environment = "prod"
  account_id  = data.aws_caller_identity.this.account_id
  region      = var.region
  partition   = data.aws_partition.this.partition
  zones       = var.zones == null ? formatlist("${var.region}%s", ["a", "b", "c"]) : var.zones

  force_destroy     = false
  access_logs       = true
  log_days          = 365
  lake_days         = { noncurrent = 14, checkpoint = 30, logs = 90 }
  stream_capacity   = { cpu = 32, memory = 128 }
  backfill_capacity = { cpu = 128, memory = 512, disk = 2000 }
  stream_workers    = { cores = 4, memory = "14g", most = 4 }
  backfill_workers  = { cores = 4, memory = "14g", most = 16 }

  existing_vpc         = var.existing_vpc
  create_endpoints     = var.create_endpoints
  existing_kms_key_arn = var.existing_kms_key_arn
  image_uri            = var.image_uri
  artifacts_prefix     = var.artifacts_prefix
  streams              = var.streams
  landing              = var.landing
  create_msk           = var.create_msk
  kafka_bootstrap      = var.kafka_bootstrap
  kafka_security       = var.kafka_security
  create_mwaa          = var.create_mwaa
  mwaa                 = var.mwaa
  secrets              = var.secrets
  analyst_principals   = var.analyst_principals
  alarm_emails         = var.alarm_emails
  monthly_budget       = var.monthly_budget
  job_environment      = var.job_environment
  job_conf             = var.job_conf
}
